"""A race: two runs side by side, each on its own clock, with the lane that is ahead, their numbers and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from core.records import Summary
from core.results import traces
from core.results.glossary import GLOSSARY
from core.results.race import Lane, Ranking, ranking
from core.types import Request
from pages.ui.kit import compare_link, numbers, parts, table
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services
from pages.ui.kit.sides import Side, bursts, lettered
from pages.ui.kit.table import Cell, Row
from pages.ui.live import race_line
from pages.ui.rounds import inspector, run_view

METRICS = (
    "output_tokens", "rounds", "tokens_per_second", "tokens_per_round", "path_acceptance", "accepted_length",
    "ttft_s", "decode_s", "draft_s", "verify_s",
)  # fmt: skip
CLOCK = "Tokens over each lane's own compute time (a lane's clock stops while the other one runs)."
NOT_A_RACE = (
    "These two runs were not asked the same thing ({}), so this is no race: the clocks are shown side by side, but "
    "the work differs."
)
LETTERS = ("A", "B")
ENDED = {"failed": "failed", "cancelled": "was stopped", "interrupted": "was interrupted"}


def draw(app: Services, one: Shown, two: Shown) -> None:
    """Draw the whole race."""
    sides = lettered([one, two])
    emitted = [bursts(app, side.run) if side.run.total else () for side in sides]
    lanes = [Lane(side.run.status, bursts) for side, bursts in zip(sides, emitted, strict=True)]
    words = sentence(ranking(lanes[0], lanes[1]), lanes[0], lanes[1])
    st.html(f'<div class="sl-verdict" role="status" data-race="{escape(words, quote=True)}">{escape(words)}</div>')
    if apart := differing(one, two):
        st.html(parts.note("warn", NOT_A_RACE.format(", ".join(apart))))
    curves = [traces.tokens_over_time(bursts) for bursts in emitted]
    race_line.draw(
        [
            race_line.Line(side.mark.letter, side.mark.colour, place == 1, curve)
            for place, (side, curve) in enumerate(zip(sides, curves, strict=True))
        ],
        max(side.run.spec.request.stops.max_new_tokens for side in sides),
        f"Tokens over each lane's own compute time. {words}",
        key="race_line",
    )
    st.caption(CLOCK)
    with st.container(key="race_numbers"):
        st.html(table.html(sides, rows([side.run.summary for side in sides]), None, "Both lanes"))
    if not one.active and not two.active:
        _compare(one, two)
    with st.container(key="race_lanes"):
        left, right = st.columns(2, gap="medium")
    inspected = _inspector(app, sides)  # drawn first, since it decides which lane's rounds can be chosen by number
    for column, side in zip((left, right), sides, strict=True):
        with column, st.container(key=f"lane_{side.mark.letter}"):
            _lane(app, side, side.run.run_id == inspected)


def sentence(found: Ranking, one: Lane, two: Lane) -> str:
    """The race in one sentence: which lane is ahead or came first, each on its own clock."""
    lanes = (one, two)
    match found.phase:
        case "waiting":
            return "Waiting for the first tokens of both lanes."
        case "broken":
            ended = [f"{LETTERS[i]} {ENDED[lane.status]}" for i, lane in enumerate(lanes) if lane.status in ENDED]
            return f"No winner: {' and '.join(ended)}. {_level(found)}"
        case "finished":
            return _finished(found, lanes)
        case "passed":
            assert found.first is not None
            other = 1 - found.first
            return (
                f"{LETTERS[found.first]} finished first on its own clock: {_tokens(lanes[found.first].tokens)} in "
                f"{numbers.seconds(lanes[found.first].own_s)}. {LETTERS[other]} has {_tokens(lanes[other].tokens)} "
                f"after {numbers.seconds(lanes[other].own_s)} and goes on."
            )
        case _:
            ended = [LETTERS[i] for i, lane in enumerate(lanes) if lane.status == "done"]
            return _level(found) + (f" {ended[0]} has finished; {_other(ended[0])} goes on." if ended else "")


def _finished(found: Ranking, lanes: tuple[Lane, Lane]) -> str:
    if found.first is None:
        return f"Both finished after {numbers.seconds(lanes[0].own_s)} of their own compute."
    first, other = lanes[found.first], lanes[1 - found.first]
    text = (
        f"{LETTERS[found.first]} finished first: {_tokens(first.tokens)} in {numbers.seconds(first.own_s)} of its own "
        f"compute; {LETTERS[1 - found.first]} took {numbers.seconds(other.own_s)} for {_tokens(other.tokens)}"
    )
    if found.longer is None:
        return text + ". Their lengths differ, so compare tokens/s, not times."
    return text + f", {found.longer:.2f} times as long."


def _level(found: Ranking) -> str:
    if found.at_s <= 0:
        return ""
    after = f"After {numbers.seconds(found.at_s)} of own compute"
    if found.ahead is None:
        return f"{after} both have {_tokens(found.tokens[0])}: level."
    ahead, behind = found.ahead, 1 - found.ahead
    return (
        f"{LETTERS[ahead]} is ahead. {after} it has {_tokens(found.tokens[ahead])}, "
        f"{LETTERS[behind]} {numbers.quantity(found.tokens[behind])}."
    )


def _tokens(count: int) -> str:
    return f"{numbers.quantity(count)} token{'' if count == 1 else 's'}"


def _other(letter: str) -> str:
    return LETTERS[1 - LETTERS.index(letter)]


def differing(one: Shown, two: Shown) -> list[str]:
    """Settings other than drafter, shape and rule in which the runs differ. Sampling may follow a rule's set."""
    pair = [] if one.spec.pair == two.spec.pair else ["pair"]
    return pair + [name for name in ("prompt", "chat", "stops", "seed") if _of(one, name) != _of(two, name)]


def _of(run: Shown, name: str) -> object:
    request: Request = run.spec.request
    return getattr(request, name)


def rows(summaries: Sequence[Summary | None]) -> list[Row]:
    """One row per metric, one cell per lane; dashes for a lane without rounds."""
    found = []
    for name in METRICS:
        metric = GLOSSARY[name]
        values = [None if each is None else getattr(each, name) for each in summaries]
        cells = tuple(Cell(numbers.metric(name, value)) for value in values)
        found.append(Row(metric.label, cells, metric.definition, numbers.unit_beside(metric), name=name))
    return found


def _compare(one: Shown, two: Shown) -> None:
    if one.summary is None or two.summary is None:
        return
    base = two.run_id if two.plain else one.run_id
    st.page_link(
        "pages/compare.py",
        label="Compare both in detail",
        icon=":material/compare_arrows:",
        query_params=compare_link.query([one.run_id, two.run_id], base),
    )


def _lane(app: Services, side: Side, inspected: bool) -> None:
    run = side.run
    st.html(f'<h3 class="sl-h">{side.badge()} {escape(side.label)}</h3>')
    run_view.head(run)
    if run.summary is None:
        return
    shown = run_view.window(app, run)
    run_view.text(app, run, shown)
    run_view.listing(run, shown, pages=not run.active, numbered=inspected)


def _inspector(app: Services, sides: Sequence[Side]) -> str | None:
    """Draw the inspector of one lane; return the id of its run if it is open."""
    with_rounds = {side.mark.letter: side for side in sides if side.run.total and side.run.summary is not None}
    if not with_rounds:
        return None
    letter = st.segmented_control(
        "Inspect lane",
        list(with_rounds),
        format_func=lambda letter: f"{letter} · {with_rounds[letter].label}",
        default=next(iter(with_rounds)),
        required=True,
        key="race_lane",
    )
    side = with_rounds.get(letter or "", next(iter(with_rounds.values())))
    return side.run.run_id if inspector.section(side.run, run_view.window(app, side.run)) else None
