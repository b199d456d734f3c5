"""One palette for chips, trees and charts: each state is a colour *and* a mark *and* a word (ux.md).

Colours are Okabe–Ito, which colour-blind readers can tell apart. Fills use them only at :data:`TINT` strength; text on
them has the theme's ink, so that contrast is at least 4.5:1 in both themes (measured in
``tests/pages/test_palette.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GREEN, VERMILLION, BLUE, PURPLE = "#009E73", "#D55E00", "#0072B2", "#CC79A7"
ORANGE, SKY, YELLOW, GREY = "#E69F00", "#56B4E9", "#F0E442", "#8A8A8A"

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Page colours of one theme; colours also set in ``.streamlit/config.toml`` are equal (a test compares them).

    ``soft``: secondary text; ``twig``: lines of trees; ``dot``: candidates of a preview.
    """

    background: str
    raised: str
    ink: str
    soft: str
    line: str
    twig: str
    link: str
    dot: str


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        background="#FFFFFF",
        raised="#F5F6F8",
        ink="#16202B",
        soft="#56606B",
        line="#D9DEE4",
        twig="#97A1AB",
        link="#0072B2",
        dot="#E0EEF6",
    ),
    "dark": Theme(
        background="#11161D",
        raised="#1A212A",
        ink="#E9EDF2",
        soft="#A3ADB8",
        line="#323C48",
        twig="#5F6B78",
        link="#56B4E9",
        dot="#173246",
    ),
}

TINT: dict[ThemeName, float] = {"light": 0.17, "dark": 0.34}
"""Share of a state's colour in its chip's background; the rest is the page's colour."""


JUDGED: dict[str, tuple[str, str]] = {"good": ("#00664A", "#4FC9A5"), "poor": ("#A34700", "#FF9A52")}
"""Text colours of better and worse values in the light and the dark theme: legible green and vermillion."""


@dataclass(frozen=True, slots=True)
class State:
    """Look and words of one state. ``meaning``: the tooltip's sentence."""

    name: str
    mark: str
    colour: str
    label: str
    meaning: str


STATES: dict[str, State] = {
    state.name: state
    for state in (
        State("accepted", "✓", GREEN, "accepted", "drafted, tested and committed"),
        State("rejected", "✗", VERMILLION, "rejected", "tested, and the coin fell at or above the accept probability"),
        State("unreached", "·", GREY, "unreached", "drafted but never tested: the walk ended before it"),
        State("cut", "✂", GREY, "cut", "accepted, but after a stop, so not part of the output"),
        State("correction", "↻", BLUE, "correction", "drawn by the target where a candidate was rejected"),
        State("bonus", "★", PURPLE, "bonus", "drawn by the target after every candidate on the path was accepted"),
        State("plain", "", GREY, "plain", "drawn by the target alone, without a draft"),
    )
}

STAGES: dict[str, State] = {
    stage.name: stage
    for stage in (
        State("draft_s", "", ORANGE, "Draft", "proposing candidates"),
        State("verify_s", "", SKY, "Verify", "the target's pass over the draft"),
        State("state_s", "", YELLOW, "State", "keeping the accepted path in the caches"),
        State("other_s", "", GREY, "Other", "everything else in the round"),
    )
}

STATUSES: dict[str, State] = {
    status.name: status
    for status in (
        State("queued", "◔", GREY, "queued", "waiting for the runs before it"),
        State("running", "▶", BLUE, "running", "decoding now"),
        State("done", "✓", GREEN, "done", "ended by its own stop"),
        State("failed", "✗", VERMILLION, "failed", "ended by an error; whole rounds are kept"),
        State("cancelled", "■", ORANGE, "cancelled", "stopped by hand; whole rounds are kept"),
        State(
            "interrupted", "⚡", PURPLE, "interrupted", "the app or its worker ended under it; whole rounds are kept"
        ),
    )
}

PAUSED = State("paused", "‖", YELLOW, "paused", "paused after its last round; the device is free for others")
"""State of a running run that is paused, which the store has no status for."""

PAIRS: dict[str, State] = {
    state.name: state
    for state in (
        State("loaded", "●", GREEN, "loaded now", "in the engine's memory: the next run of it starts at once"),
        State("loading", "◔", ORANGE, "loading", "on its way into the engine's memory"),
        State("here", "✓", BLUE, "on this machine", "every file is here; a run or Load brings it into memory"),
        State("missing", "○", GREY, "not downloaded", "something is not on this machine"),
    )
}


def mix(colour: str, ground: str, share: float) -> str:
    """``share`` of ``colour`` over ``ground``, both ``#rrggbb``: the visible colour of a translucent fill."""
    top, under = _channels(colour), _channels(ground)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02X}" for a, b in zip(top, under, strict=True))


def tint(state: State, theme: ThemeName) -> str:
    """The solid background colour of a chip of this state."""
    return mix(state.colour, THEMES[theme].background, TINT[theme])


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
