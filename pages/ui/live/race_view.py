"""Two runs side by side: one clock a lane, who is ahead, the numbers beside each other, both lists of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from core.records import Summary
from core.results import traces
from core.results.metrics import GLOSSARY
from core.results.race import Lane, standing
from core.types import Request
from pages.ui.compare import metrics
from pages.ui.kit import compare_link, parts, table
from pages.ui.kit import sides as compare_sides
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services
from pages.ui.kit.sides import Side
from pages.ui.kit.table import Cell, Row
from pages.ui.live import race_line, race_words
from pages.ui.rounds import inspector, run_view

METRICS = (
    "output_tokens", "rounds", "tokens_per_second", "tokens_per_round", "path_acceptance", "accepted_length",
    "ttft_s", "decode_s", "draft_s", "verify_s",
)  # fmt: skip
CLOCK = "A lane's clock counts its own compute alone: it stands still while the other lane has the device."
NOT_A_RACE = (
    "These two runs were not asked the same thing ({}), so this is no race: the clocks stand beside each other, but "
    "the work differs."
)


def draw(app: Services, one: Shown, two: Shown) -> None:
    """The whole race."""
    sides = compare_sides.unnamed([one, two])
    emitted = [compare_sides.bursts(app, side.run) if side.run.total else () for side in sides]
    lanes = [Lane(side.run.status, bursts) for side, bursts in zip(sides, emitted, strict=True)]
    words = race_words.sentence(standing(lanes[0], lanes[1]), lanes[0], lanes[1])
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
        f"Tokens over own seconds. {words}",
        key="race_line",
    )
    st.caption(f"Tokens over own seconds. {CLOCK}")
    with st.container(key="race_numbers"):
        st.html(table.html(sides, rows([side.run.summary for side in sides]), None, "Both lanes"))
    if not one.active and not two.active:
        _compare(one, two)
    with st.container(key="race_lanes"):
        left, right = st.columns(2, gap="medium")
    inspected = _inspector(app, sides)  # first, since it decides whose rounds can be chosen by their numbers
    for column, side in zip((left, right), sides, strict=True):
        with column, st.container(key=f"lane_{side.mark.letter}"):
            _lane(app, side, side.run.run_id == inspected)


def differing(one: Shown, two: Shown) -> list[str]:
    """What the runs were asked differently besides drafter, shape and rule. Sampling may follow a rule's set."""
    pair = [] if one.spec.pair == two.spec.pair else ["pair"]
    return pair + [name for name in ("prompt", "chat", "stops", "seed") if _of(one, name) != _of(two, name)]


def _of(run: Shown, name: str) -> object:
    request: Request = run.spec.request
    return getattr(request, name)


def rows(summaries: Sequence[Summary | None]) -> list[Row]:
    """A line a metric, a cell a lane; a lane without rounds has dashes."""
    found = []
    for name in METRICS:
        metric = GLOSSARY[name]
        values = [None if each is None else getattr(each, name) for each in summaries]
        cells = tuple(Cell(metrics.value(name, value)) for value in values)
        unit = "" if metric.unit in {"s", "share"} or metric.unit in metric.label.lower() else metric.unit
        found.append(Row(metric.label, cells, metric.definition, unit, name=name))
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
    """The inspector of one lane; the id of its run while it is open."""
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
