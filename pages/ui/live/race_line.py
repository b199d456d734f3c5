"""Tokens over own seconds, a stair for each lane, painted by a small component: cheap enough for every tick.

The script gets numbers and letters only, no model text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from core.results.traces import Curve
from pages.ui.kit import numbers

_SCRIPT = Path(__file__).with_name("race_line.js").read_text(encoding="utf-8")
STEPS = (1, 2, 5)
MAX_TICKS = 5
"""At most so many marks on an axis besides 0."""


@dataclass(frozen=True, slots=True)
class Line:
    """One lane: its letter, its colour, whether dashed, its curve."""

    letter: str
    colour: str
    dashed: bool
    curve: Curve


def draw(lines: Sequence[Line], most_tokens: int, words: str, key: str) -> None:
    """Paints the lanes. ``most_tokens``: the limit, drawn as the finish; ``words``: what it shows, in a sentence."""
    _component()(key=key, data=data(lines, most_tokens, words))


def data(lines: Sequence[Line], most_tokens: int, words: str) -> dict[str, Any]:
    """What the script paints: stairs as shares of the axes, and the axes' marks."""
    longest = max((line.curve.seconds[-1] for line in lines), default=0.0)
    most = max([1, *(line.curve.tokens[-1] for line in lines)])
    xs, ys = ticks(longest or 1.0), ticks(min(most_tokens, most))
    width, height = max(xs[-1], longest), max(ys[-1], most)
    return {
        "lines": [
            {
                "letter": line.letter,
                "colour": line.colour,
                "dashed": line.dashed,
                "x": [second / width for second in line.curve.seconds],
                "y": [count / height for count in line.curve.tokens],
            }
            for line in lines
        ],
        "xs": [{"at": x / width, "text": "0" if x == 0 else numbers.seconds(x)} for x in xs],
        "ys": [{"at": y / height, "text": numbers.quantity(round(y))} for y in ys],
        "words": words,
    }


def ticks(most: float) -> list[float]:
    """0 and round numbers up to ``most`` or the next above it, at most :data:`MAX_TICKS` besides 0."""
    size = 1.0
    while size > most / MAX_TICKS:
        size /= 10
    while True:
        for step in STEPS:
            if most / (size * step) <= MAX_TICKS:
                count = -(-most // (size * step))
                return [size * step * place for place in range(int(count) + 1)]
        size *= 10


def _component() -> Any:
    # Mounted in the page's own tree, so that the one style sheet serves it too.
    return component("speclens.race", html='<div class="sl-race"></div>', js=_SCRIPT, isolate_styles=False)
