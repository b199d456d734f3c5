"""What is known of a pair as inert HTML: its state, its models side by side, and the memory it needs against what is
free. Every number comes finished from ``core``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.pairs.description import Description
from core.pairs.inventory import KnownPair
from core.pairs.memory import DeviceMemory, Fit, Need
from pages.ui.kit import numbers, palette

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("Model", "Hub name or folder; the target verifies, the draft proposes."),
    ("Parameters", "Numbers in memory once loaded; an output head tied to the embedding counts once."),
    ("On disk", "Bytes of the weight files."),
    ("Layers", "Decoder layers."),
    ("Heads", "Attention heads, and those of keys and values, which the cache holds."),
    ("Context", "Most positions that the model was made for, in tokens."),
    ("Vocabulary", "Rows of the output head; the last ones may be padding."),
    ("Chat", "Whether the model brings a chat template."),
)

_VERDICTS: dict[Fit, tuple[str, str]] = {
    "fits": ("yes", "It fits."),
    "weights": ("open", "The weights fit, a slot of this length does not: choose a shorter context."),
    "nothing": ("no", "It does not fit: choose a shorter precision or a smaller pair."),
    "unknown": ("open", ""),
}


def badge(state: str) -> str:
    """A pair's state as colour, mark and word."""
    look = palette.PAIRS[state]
    return f'<span class="sl-badge sl-pair-{look.name}" title="{escape(look.meaning, quote=True)}">{look.label}</span>'


def title(pair: KnownPair, state: str, held: str, *more: str) -> str:
    """Name, state, and sentences about the pair; ``held``: in which precision and where it is loaded."""
    models = " + ".join(one for one in (pair.target, pair.draft) if one)
    names = (
        "" if models.replace(" ", "") == pair.name.replace(" ", "") else f'<span class="sl-of">{escape(models)}</span>'
    )
    about = "".join(f"<p>{escape(text)}</p>" for text in (pair.note, *more) if text)
    in_it = f'<span class="sl-of">{escape(held)}</span>' if held else ""
    head = f'<div class="sl-line"><h4>{escape(pair.name)}</h4>{badge(state)}{in_it}{names}</div>'
    return f'<div class="sl-pair" data-pair="{escape(pair.name, quote=True)}" data-state="{state}">{head}{about}</div>'


def models_table(models: Sequence[Description]) -> str:
    """Target and draft, a row each."""
    if not models:
        return ""
    head = "".join(
        f'<th scope="col" title="{escape(tip, quote=True)}"{_side(place)}>{label}</th>'
        for place, (label, tip) in enumerate(_COLUMNS)
    )
    rows = "".join(_row(model, role) for model, role in zip(models, ("target", "draft"), strict=False))
    return f'<div class="sl-models"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(model: Description, role: str) -> str:
    heads = numbers.quantity(model.heads)
    if model.heads is not None and model.kv_heads not in (None, model.heads):
        heads += f" ({numbers.quantity(model.kv_heads)} KV)"
    cells = (
        numbers.parameters(model.parameters),
        numbers.size(model.disk_bytes),
        numbers.quantity(model.layers),
        heads,
        numbers.quantity(model.context),
        numbers.quantity(model.vocabulary),
        "yes" if model.chat_template else "no",
    )
    name = f'<th scope="row"><span>{role}</span> {escape(model.name)} <small>{escape(model.kind)}</small></th>'
    return f"<tr>{name}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _side(place: int) -> str:
    return "" if place == 0 else ' class="num"'


def memory_line(
    needed: Need, device: DeviceMemory, free: int | None, verdict: Fit, about: bool = False, loaded: bool = False
) -> str:
    """What is needed against what is free, as a bar and in words. ``about``: from published sizes; ``loaded``: it is in
    memory already."""
    if needed.weights is None or needed.total is None:
        return ""
    roughly = "about " if about else ""
    parts = "for the weights"
    if needed.cache is not None:
        slot = f"{numbers.size(needed.cache)} for one slot of {numbers.quantity(needed.rows)} tokens"
        parts = f"{numbers.size(needed.weights)} for the weights + {slot}"
    if needed.loading is not None and needed.loading > needed.total:
        parts += f", {numbers.size(needed.loading)} while it is loaded"
    where = "GPU memory" if device.kind == "cuda" else "memory"
    room = f"{numbers.size(free)} of {where} free" if free is not None else f"free {where} unknown"
    mark, sentence = ("yes", "It is in memory.") if loaded else _VERDICTS[verdict]
    words = (
        f"<b>{roughly}{numbers.size(needed.total)}</b> needed{':' if needed.cache is not None else ''} {escape(parts)}"
        f' · {escape(room)} <em class="sl-mark-{mark}">{escape(sentence)}</em>'
    )
    return f'<div class="sl-need" data-fit="{verdict}">{_bar(needed, free)}<span>{words}</span></div>'


def _bar(needed: Need, free: int | None) -> str:
    """Weights and cache as parts of what is free; a need beyond it fills the bar and runs over its mark."""
    if free is None or needed.weights is None or needed.total is None:
        return ""
    whole = max(free, needed.total, 1)
    pieces = (("w", needed.weights), ("c", needed.cache or 0))
    filled = "".join(f'<i class="{cls}" style="width:{part / whole:.2%}"></i>' for cls, part in pieces if part)
    limit = f'<u style="left:{free / whole:.2%}"></u>' if needed.total > free else ""
    return f'<div class="sl-fill" aria-hidden="true">{filled}{limit}</div>'


def device_panel(device: DeviceMemory, held: str) -> str:
    """The device that is meant, what is free on it, and what the engine holds."""
    used = ""
    if device.total and device.free is not None:
        used = (
            f'<div class="sl-fill" aria-hidden="true"><i class="u" style="width:{1 - device.free / device.total:.2%}">'
            "</i></div>"
        )
    free = (
        f"<b>{numbers.size(device.free)}</b> free of {numbers.size(device.total)}"
        if device.free is not None
        else "free memory unknown"
    )
    return (
        f'<div class="sl-device"><div><b>{escape(device.name)}</b><span>{free}</span></div>{used}'
        f'<div><span>In the engine\'s memory</span><b class="sl-held">{escape(held)}</b></div></div>'
    )
