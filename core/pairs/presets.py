"""The pairs that are offered by name, and what each lacks on this machine. No torch: pages and command line list them.

Sizes are those of the published weights (bfloat16): what a download takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import BadInput
from core.pairs import embedded, folders
from core.types import DrafterSpec, EarlyExitDrafter, PromptLookupDrafter, SmallModelDrafter


@dataclass(frozen=True, slots=True)
class Preset:
    """A pair with a short name. ``draft`` is None when the pair's default drafter needs no second model.

    ``gigabytes``: weights of target and draft together, 10⁹ bytes.
    """

    name: str
    target: str
    draft: str | None
    drafter: DrafterSpec
    gigabytes: float
    note: str


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            embedded.NAME,
            embedded.TITLE,
            None,
            PromptLookupDrafter(),
            0.5,
            "Runs anywhere. Drafts by prompt lookup; its early exits are untrained: a mechanism, not a gain.",
        ),
        Preset(
            "qwen2.5-7b",
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-0.5B-Instruct",
            SmallModelDrafter(),
            16.2,
            "Heads of different width over one vocabulary. A GPU is advisable.",
        ),
        Preset("qwen3-8b", "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", SmallModelDrafter(), 17.9, "A GPU is advisable."),
        Preset(
            "llama-3.1-8b",
            "meta-llama/Llama-3.1-8B-Instruct",
            "meta-llama/Llama-3.2-1B-Instruct",
            SmallModelDrafter(),
            18.5,
            "Its owner gives it out on request. A GPU is advisable.",
        ),
        Preset(
            "smollm2-1.7b",
            "HuggingFaceTB/SmolLM2-1.7B-Instruct",
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            SmallModelDrafter(),
            3.7,
            "The smallest real pair; runs on a laptop.",
        ),
        Preset(
            "layerskip-1b",
            "facebook/layerskip-llama3.2-1B",
            None,
            EarlyExitDrafter(layers=4),
            2.5,
            "Its exits are trained, so early exit after 4 of 16 layers can pay. Its owner gives it out on request.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class PairStatus:
    """Whether a preset can run here. ``missing``: a sentence that says what is absent and what to do, or ""."""

    name: str
    target: str
    draft: str | None
    available: bool
    missing: str
    note: str


def list_pairs() -> list[PairStatus]:
    """Every preset with what it lacks on this machine, from the file system alone: no network, no weights read."""
    return [_status(preset) for preset in PRESETS.values()]


def _status(preset: Preset) -> PairStatus:
    missing = embedded.missing() if preset.name == embedded.NAME else _missing(preset)
    return PairStatus(preset.name, preset.target, preset.draft, not missing, missing, preset.note)


def _missing(preset: Preset) -> str:
    absent = [name for name in (preset.target, preset.draft) if name and folders.find(name) is None]
    if not absent:
        return ""
    begun = [f"what is here of {name} {lacking}" for name in absent if (lacking := folders.partly(name)) is not None]
    if begun:
        text = "; ".join(begun)
        return f"{text[:1].upper()}{text[1:]}: the next run tries to download the rest when the network allows."
    verb = "is" if len(absent) == 1 else "are"
    return (
        f"{' and '.join(absent)} {verb} not on this machine: downloaded at the first run when the network allows "
        f"({preset.gigabytes:g} GB for the pair)."
    )


def default_drafter(name: str) -> DrafterSpec:
    """The drafter that is used with a pair unless another is chosen.

    Raises BadInput when the pair's name can't be read.
    """
    if name in PRESETS:
        return PRESETS[name].drafter
    _, draft = split(name)
    return SmallModelDrafter() if draft else PromptLookupDrafter()


def split(name: str) -> tuple[str, str | None]:
    """Target and draft of a pair's name: a preset, ``TARGET+DRAFT`` or ``TARGET``; ``embedded`` is a model name too.

    A ``+`` in the path of an existing folder belongs to that path. Raises BadInput when a side is empty or the split is
    ambiguous.
    """
    name = folders.without_addresses(name.strip())
    if name in PRESETS:
        preset = PRESETS[name]
        return (embedded.NAME if name == embedded.NAME else preset.target), preset.draft
    if "+" not in name or folders.find(name) is not None:
        target, draft = name, None
    else:
        cuts = [n for n, character in enumerate(name) if character == "+"]
        sides = [(name[:n].strip(), name[n + 1 :].strip()) for n in cuts]
        known = [pair for pair in sides if all(folders.find(side) is not None for side in pair)]
        if len(cuts) > 1 and len(known) != 1:
            raise BadInput(
                f"The pair {name!r} has {len(cuts)} plus signs: write TARGET+DRAFT with one between two models."
            )
        target, draft = known[0] if known else sides[0]
    if not target or draft == "":
        raise BadInput(
            f"The pair {name!r} names no {'target' if not target else 'draft'}: write {embedded.NAME}, a preset "
            f"({', '.join(list(PRESETS)[1:])}), TARGET or TARGET+DRAFT."
        )
    return target, draft
