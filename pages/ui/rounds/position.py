"""One position of a round: the coins of the candidates tested there; the top tokens' p, q, residual and induced law."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.records import Distortion, Node, Position, Round, TopToken
from pages.ui.kit import numbers, palette
from pages.ui.kit.glyphs import chip_text
from pages.ui.rounds import tokens

COLUMNS = {
    "p": "The target's probability here, as processed by the sampling.",
    "q": "The draft's probability here: what a candidate was drawn with. 1 for each deterministic candidate.",
    "residual": "What the rule redraws from once every candidate of the position is rejected.",
    "induced": "What the rule emits here, acceptances and redraws together. A lossless rule emits p.",
}
FALLBACK = "the draft had no mass in the allowed set: a redraw falls back to the target's"
CONDITIONAL = "given the tokens tried: siblings were drawn without replacement"


def tested(round_: Round, position: int) -> list[int]:
    """Candidates tested after node ``position``, in the order of their tests."""
    return [i for i, node in enumerate(round_.nodes) if node.parent == position and node.u is not None]


def coins(round_: Round, tested_nodes: Sequence[int], chosen: int) -> str:
    """Coins as HTML: one bar per candidate, its coin and threshold on a line from 0 to 1 (accepted iff u < accept
    probability); the ``chosen`` candidate is marked."""
    rows = "".join(_coin(round_.nodes[index], index == chosen) for index in tested_nodes)
    return f'<div class="sl-coins">{rows}</div>'


def _coin(node: Node, chosen: bool) -> str:
    if node.u is None or node.accept_prob is None:
        return ""
    look = palette.STATES[node.fate]
    passed = node.u < node.accept_prob
    words = (
        f"coin u {numbers.probability(node.u)} {'<' if passed else '≥'} accept probability "
        f"{numbers.probability(node.accept_prob)} → {look.mark} {look.label}"
    )
    more = [text for text, holds in ((tokens.NEAR, node.near_threshold), (FALLBACK, node.redraw_fallback)) if holds]
    small = "".join(f"<small>{escape(text)}</small>" for text in more)
    at = ' aria-current="true"' if chosen else ""
    return (
        f'<div class="sl-coin"{at}><span class="sl-chip sl-{node.fate}">{chip_text(node.text) or "∅"}</span>'
        f'<span class="sl-track" aria-hidden="true"><i style="width:{node.accept_prob:.2%}"></i>'
        f'<b style="left:{node.u:.2%}"></b></span>'
        f'<span class="sl-says">{escape(words)}{small}</span></div>'
    )


def table(round_: Round, position: Position, drawn: str | None, chosen_token: int | None) -> str:
    """Table of the position's top tokens. ``drawn``: the state (correction, bonus) of the round's last token, if it was
    drawn here; ``chosen_token``: the token of the candidate chosen in the tree, marked in the table."""
    texts = {node.token: node.text for node in round_.nodes if node.parent == position.node}
    states: dict[int, list[str]] = {node.token: [node.fate] for node in round_.nodes if node.parent == position.node}
    if drawn and round_.committed:
        last = round_.committed[-1]
        states[last] = [*states.get(last, []), drawn]
        texts.setdefault(last, tokens.last(round_)[0])
    rows = [
        _row(top, states.get(top.token, []), top.token == chosen_token)
        for top in position.top
        if top.p or top.q or top.token in states  # under a one-hot law the other rows are zero
    ]
    outside = states.keys() - {top.token for top in position.top}
    beyond = "".join(_chips(texts[token], states[token]) for token in sorted(outside))
    head = "".join(
        f'<th scope="col" class="num"><span class="sl-help" title="{escape(tip, quote=True)}">{name}</span></th>'
        for name, tip in COLUMNS.items()
    )
    rest = _cells(position.p_rest, position.q_rest, None, None)
    return (
        '<div class="sl-top" role="region" tabindex="0" aria-label="Top tokens"><table><thead><tr>'
        f'<th scope="col">Token</th>{head}</tr></thead><tbody>{"".join(rows)}'
        f'<tr class="sl-rest"><th scope="row">all others {beyond}</th>{rest}</tr></tbody></table></div>'
    )


def distortion(found: Distortion | None) -> str:
    """Distance of the rule's law from the reference law at the position, in one line; empty if not measured."""
    if found is None:
        return ""
    bits = [f"KL {numbers.NOTHING if found.kl is None else f'{numbers.probability(found.kl)} nats'}"]
    bits.append(f"TV {numbers.probability(found.tv)}")
    if found.escaped_mass:
        bits.append(f"mass outside the reference law {numbers.probability(found.escaped_mass)}")
    if found.overshoot is not None:
        bits.append(f"overshoot {numbers.rate(found.overshoot)} of tested tokens")
    if found.conditional:
        bits.append(CONDITIONAL)
    items = "".join(f"<span>{escape(bit)}</span>" for bit in bits)
    return f'<div class="sl-status sl-distortion"><span>Distortion here:</span>{items}</div>'


def _row(top: TopToken, states: list[str], chosen: bool) -> str:
    name = _chips(top.text, states) or f"<code>{chip_text(top.text) or '∅'}</code>"
    at = ' aria-current="true"' if chosen else ""
    return f'<tr{at}><th scope="row">{name}</th>{_cells(top.p, top.q, top.residual, top.induced)}</tr>'


def _chips(text: str, states: list[str]) -> str:
    """Chips of a token, one for each of its ``states`` here, with their words."""
    chips = "".join(f'<span class="sl-chip sl-{state}">{chip_text(text) or "∅"}</span>' for state in states)
    words = ", ".join(palette.STATES[state].label for state in states)
    return f"{chips} <small>{words}</small>" if words else ""


def _cells(*values: float | None) -> str:
    return "".join(_cell(value) for value in values)


def _cell(value: float | None) -> str:
    bar = "" if not value else f'<i style="width:{min(1.0, value):.1%}"></i>'
    return f'<td class="num">{numbers.probability(value)}{bar}</td>'
