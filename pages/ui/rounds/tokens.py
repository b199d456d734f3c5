"""Tokens as HTML: one chip per candidate, and the output text with each token's origin."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.records import ROOT, Node, Round
from pages.ui.kit import numbers, palette
from pages.ui.kit.glyphs import chip_text, flow_text, plain_glyphs

NEAR = "the coin fell within 1e-5 of its threshold: float noise could have decided otherwise"


def candidate(node: Node) -> str:
    """Chip of a candidate: colour and mark of its fate; hover or focus shows its numbers."""
    return _chip(node.fate, node.text, tip(node))


def origin(round_: Round) -> str:
    """State of the token that the target itself added at the round's end: ``plain`` if nothing was drafted, since a
    bonus is earned by accepted candidates; ``none`` if the round ended inside its draft."""
    return round_.source if round_.nodes or round_.source == "none" else "plain"


def committed(round_: Round) -> str:
    """Chip of the token that the target itself added at the round's end; empty if the round ended inside its draft."""
    if round_.source == "none" or not round_.committed:
        return ""
    text, state, description = last(round_)
    return _chip(state, text, description)


def last(round_: Round) -> tuple[str, str, str]:
    """Text, state and description of the token that the target itself added at the round's end."""
    state = origin(round_)
    token, where = round_.committed[-1], path_end(round_)
    top = next((top for at in round_.positions if at.node == where for top in at.top if top.token == token), None)
    text = top.text if top else round_.committed_text[-1] or f"⟨{token}⟩"
    lines = [_headline(state, text, token), palette.STATES[state].meaning]
    if top:
        odds = [f"p {numbers.probability(top.p)}"] + ([] if top.q is None else [f"q {numbers.probability(top.q)}"])
        lines.insert(1, " · ".join(odds) + " at this position")
    return text, state, "\n".join(lines)


def output(rounds: Sequence[Round], plain: bool) -> str:
    """Text of these rounds as running text, with accepted stretches, corrections and bonus tokens marked."""
    if plain:
        return _stretch("plain", "".join(text for r in rounds for text in r.committed_text), "")
    return "".join(_round_text(r) for r in rounds)


def legend(states: Sequence[str]) -> str:
    """Legend of the marks in use, on one line."""
    items = "".join(
        f'<span class="sl-key sl-{s.name}" title="{escape(s.meaning, quote=True)}">{s.label}</span>'
        for s in map(palette.STATES.__getitem__, states)
    )
    return f'<div class="sl-legend">{items}</div>'


def _round_text(round_: Round) -> str:
    accepted = round_.accepted
    kept = _stretch("accepted", "".join(round_.committed_text[:accepted]), f"round {round_.index + 1}")
    if round_.source == "none":
        return kept
    return kept + _stretch(origin(round_), "".join(round_.committed_text[accepted:]), f"round {round_.index + 1}")


def _stretch(state: str, text: str, where: str) -> str:
    """Consecutive tokens of one origin as one element, which keeps thousands of tokens light."""
    if not text:
        return ""
    title = f' title="{palette.STATES[state].label} · {where}"' if where else ""
    return f'<span class="sl-o sl-{state}"{title}>{flow_text(text)}</span>'


def _chip(state: str, text: str, tip: str) -> str:
    return (
        f'<span class="sl-chip sl-{state}" tabindex="0" role="img" aria-label="{escape(tip, quote=True)}">'
        f"{chip_text(text) or '∅'}</span>"
    )


def _headline(state: str, text: str, token: int) -> str:
    # The sanitiser drops an attribute that holds "-->" or "</style": angle brackets in the label are look-alikes.
    shown = plain_glyphs(text).replace("<", "‹").replace(">", "›")
    look = palette.STATES[state]
    return f"{look.mark} {look.label} “{shown}” · token {token}".strip()


def tip(node: Node) -> str:
    """A candidate in words: token, fate, probabilities and coin, one line each."""
    lines = [_headline(node.fate, node.text, node.token)]
    named = (("p", node.p), ("q", node.q), ("score", node.score))
    lines.append(" · ".join(f"{name} {numbers.probability(value)}" for name, value in named))
    if node.u is None or node.accept_prob is None:
        lines.append(palette.STATES["unreached"].meaning if node.fate == "unreached" else "no coin was thrown")
    else:
        sign = "<" if node.u < node.accept_prob else "≥"
        coin, bar = numbers.probability(node.u), numbers.probability(node.accept_prob)
        lines.append(f"coin u {coin} {sign} accept probability {bar}")
    if node.fate == "cut":
        lines.append(palette.STATES["cut"].meaning)
    if node.near_threshold:
        lines.append(NEAR)
    return "\n".join(lines)


def path_end(round_: Round) -> int:
    """The node whose position gave the round's last token: the deepest accepted one, else the root."""
    accepted = [index for index, node in enumerate(round_.nodes) if node.fate == "accepted"]
    return max(accepted, key=lambda index: round_.nodes[index].depth, default=ROOT)
