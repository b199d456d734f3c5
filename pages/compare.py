"""Compare: two to ten runs side by side. First whether they are matched, then everything they measured."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.errors import SpecLensError
from core.results import traces
from core.results.glossary import GLOSSARY
from pages.ui.compare import charts, choice, metrics, prompts, settings, text, verdict
from pages.ui.kit import compare_link, notices, numbers, parts
from pages.ui.kit.charts import CONFIG
from pages.ui.kit.compare_link import Link
from pages.ui.kit.runs import Shown, find
from pages.ui.kit.services import Services, services
from pages.ui.kit.sides import MOST, Side, bursts, label, named_sides, plain
from pages.ui.rounds import counterparts
from storage.filters import RunFilter

TICK_S = 0.5
"""How often the runs that are waited for are drawn, in seconds."""


def page() -> None:
    """The choice of runs and their comparison."""
    app = services()
    notices.faults(app)
    link = compare_link.read(st.query_params.get(compare_link.RUNS), st.query_params.get(compare_link.BASE))
    try:
        runs = [run for run_id in link.runs if (run := find(app, run_id)) is not None]
        sides = named_sides(app, runs)
        link = compare_link.make([run.run_id for run in runs], link.base, _missing(link, runs), link.left_out)
        choice.draw(app, link, sides)
        _refused(link)
        _compare(app, link, sides)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
        if st.button("Try again", icon=":material/refresh:"):
            st.rerun()


def _missing(link: Link, runs: Sequence[Shown]) -> int:
    return link.refused + len(link.runs) - len(runs)


def _refused(link: Link) -> None:
    """The runs of the link that can't be shown."""
    if link.refused:
        which = "a run that is" if link.refused == 1 else f"{link.refused} runs that are"
        st.html(parts.note("warn", f"The link names {which} not here: deleted, or of another data folder."))
    if link.left_out:
        text = f"At most {MOST} runs are compared: the last {link.left_out} of the link are left out."
        st.html(parts.note("warn", text))


def _compare(app: Services, link: Link, sides: Sequence[Side]) -> None:
    if not sides:
        _nothing(app)
        return
    waiting = [side for side in sides if side.run.active]
    if waiting:
        st.fragment(_waiting, run_every=TICK_S)([side.run.run_id for side in waiting])
    empty = [side for side in sides if not side.run.active and side.run.summary is None]
    for side in empty:
        text = side.run.error or f"It was {side.run.status} before its prompt was read."
        st.html(parts.note("bad", text, f"{side.mark.letter} has nothing to compare."))
    ended = [side for side in sides if not side.run.active and side.run.summary is not None]
    if len(ended) >= 2:
        base = next((place for place, side in enumerate(ended) if side.run.run_id == link.base), 0)
        _side_by_side(app, ended, base)
        counterparts.section(app, _speculative(ended, base), tuple(link.runs))
    elif len(sides) == 1:
        _one(app, sides[0])


def _nothing(app: Services) -> None:
    st.html(parts.empty("Nothing chosen yet", "Choose two to ten runs above, or one run to see its counterparts."))
    if app.runs is not None and not app.runs.count(RunFilter()):
        st.html(parts.note("info", "No run is kept yet: decode a prompt on Live first."))
        st.page_link("pages/live.py", label="Go to Live", icon=":material/play_circle:")


def _one(app: Services, side: Side) -> None:
    """One run alone: what it can be compared with."""
    if side.run.active or side.run.summary is None:
        return
    st.html(parts.empty("One run chosen", "Add another run above, or take one of the counterparts below."))
    counterparts.section(app, side.run)
    with parts.headline("counterpart_itself"):
        st.html('<p class="sl-reason">The run beside itself: every section, with nothing changed.</p>')
        if st.button("Itself", icon=":material/content_copy:", key="compare_itself"):
            choice.put([side.run.run_id] * 2, side.run.run_id)
            st.rerun()


@notices.told
def _waiting(run_ids: Sequence[str]) -> None:
    """The runs that are on their way; when one ends, the page is drawn anew."""
    app = services()
    runs = [run for run_id in dict.fromkeys(run_ids) if (run := find(app, run_id)) is not None]
    for run in runs:
        with parts.headline(f"waiting_{run.run_id}"):
            st.html(f'<p class="sl-reason"><b>{plain(label(run.spec))}</b></p>')
            if run.active and st.button("Stop", icon=":material/stop:", key=f"stop_{run.run_id}"):
                app.jobs.cancel(run.run_id)
        st.html(parts.status_line(run))
    if any(not run.active for run in runs) or not runs:
        st.rerun(scope="app")
    st.caption("The comparison appears here when it is done.")


def _speculative(sides: Sequence[Side], base: int) -> Shown:
    """The run whose counterparts are offered: the baseline, or the first that drafts when the baseline is plain."""
    drafting = [side.run for side in (sides[base], *sides) if not side.run.plain]
    return drafting[0] if drafting else sides[base].run


def _side_by_side(app: Services, sides: Sequence[Side], base: int) -> None:
    verdict.draw(sides, base)
    settings.draw(sides, base)
    metrics.draw(app, sides, base)
    _charts(app, sides)
    text.draw(app, sides, base)
    prompts.draw(sides, base)


def _charts(app: Services, sides: Sequence[Side]) -> None:
    drawn = [(side, side.run.summary) for side in sides if side.run.summary is not None]
    emitted = [(side, bursts(app, side.run)) for side in sides]
    parallel = charts.parallel(drawn, metrics.speed_ups(app, sides))
    if parallel is not None:
        _chart("Metrics at a glance", "each axis from worst to best of these runs", parallel, "parallel",
               "One line a run over the metrics, the better end up.")  # fmt: skip
    with st.container(key="compare_charts"):
        left, right = st.columns(2, gap="medium")
    with left:
        _chart("Cycle time", "per committed token", charts.stages(drawn), "stages",
               "Seconds per committed token spent drafting, verifying, keeping state and otherwise.")  # fmt: skip
        found = charts.acceptance(drawn)
        if found is None:
            st.html('<h3 class="sl-h">Acceptance by position</h3>')
            st.html(parts.empty("Nothing was drafted", "Plain runs accept and reject nothing."))
        else:
            _chart("Acceptance by position", "share of rounds", found, "acceptance",
                   "Acceptance by position in the draft, unconditional and conditional.")  # fmt: skip
            st.caption(
                f"Unconditional: {_lower(GLOSSARY['acceptance_unconditional'].definition)} "
                f"Conditional: {_lower(GLOSSARY['acceptance_conditional'].definition)}"
            )
    with right:
        curves = [(side, traces.tokens_over_time(bursts)) for side, bursts in emitted]
        _chart("Tokens over time", "", charts.over_time(curves), "over_time",
               "Tokens emitted by each moment since the request was accepted.")  # fmt: skip
        waits = [(side, traces.gaps(bursts)) for side, bursts in emitted]
        _chart("Token gaps", "a bar is the wait before a burst; tokens between bars came at once",
               charts.gaps(waits), "gaps", "The wait before each burst of tokens, run by run.")  # fmt: skip
        merged = max((gap.merged for _, found in waits for gap in found), default=1)
        if merged > 1:
            st.caption(f"Long runs are thinned: a bar is the longest wait of up to {numbers.quantity(merged)} bursts.")


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _chart(title: str, more: str, figure, key: str, alt: str) -> None:
    small = f" <small>{more}</small>" if more else ""
    st.html(f'<h3 class="sl-h">{title}{small}</h3>')
    st.plotly_chart(figure, config=CONFIG, key=f"compare_{key}", alt=alt)


page()
