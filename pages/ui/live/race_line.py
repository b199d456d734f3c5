"""Tokens over each lane's own seconds, as step curves painted by a small component that is cheap enough for every tick.

The script receives only numbers and letters, no model text.
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
"""Most marks on an axis besides 0."""


@dataclass(frozen=True, slots=True)
class Line:
    """Line of one lane: its letter, its colour, whether dashed, its curve."""

    letter: str
    colour: str
    dashed: bool
    curve: Curve


def draw(lines: Sequence[Line], most_tokens: int, words: str, key: str) -> None:
    """Draw the lanes. ``most_tokens``: the limit, drawn as the finish; ``words``: the figure in a sentence."""
    _component()(key=key, data=data(lines, most_tokens, words))


def data(lines: Sequence[Line], most_tokens: int, words: str) -> dict[str, Any]:
    """Data for the script: step curves as shares of the axes, and the axes' marks."""
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
    """Marks at 0 and at round numbers up to ``most`` or just above, at most :data:`MAX_TICKS` besides 0."""
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
