"""The coin against its threshold: accepted iff u < accept probability, drawn on one line from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from core.records import Node, Round
from pages.ui.kit import numbers, palette
from pages.ui.kit.glyphs import chip_text
from pages.ui.rounds.tokens import NEAR

FALLBACK = "the draft had no mass in the allowed set: a redraw falls back to the target's"


def tested(round_: Round, position: int) -> list[int]:
    """The candidates that were tested after node ``position``, in the order of their tests."""
    return [i for i, node in enumerate(round_.nodes) if node.parent == position and node.u is not None]


def bars(round_: Round, tested_nodes: Sequence[int], chosen: int) -> str:
    """One bar a candidate; the ``chosen`` one is marked."""
    rows = "".join(_bar(round_.nodes[index], index == chosen) for index in tested_nodes)
    return f'<div class="sl-coins">{rows}</div>'


def _bar(node: Node, chosen: bool) -> str:
    if node.u is None or node.accept_prob is None:
        return ""
    look = palette.STATES[node.fate]
    passed = node.u < node.accept_prob
    says = (
        f"coin u {numbers.probability(node.u)} {'<' if passed else '≥'} accept probability "
        f"{numbers.probability(node.accept_prob)} → {look.mark} {look.label}"
    )
    more = [text for text, holds in ((NEAR, node.near_threshold), (FALLBACK, node.redraw_fallback)) if holds]
    small = "".join(f"<small>{escape(text)}</small>" for text in more)
    at = ' aria-current="true"' if chosen else ""
    return (
        f'<div class="sl-coin"{at}><span class="sl-chip sl-{node.fate}">{chip_text(node.text) or "∅"}</span>'
        f'<span class="sl-track" aria-hidden="true"><i style="width:{node.accept_prob:.2%}"></i>'
        f'<b style="left:{node.u:.2%}"></b></span>'
        f'<span class="sl-says">{escape(says)}{small}</span></div>'
    )
