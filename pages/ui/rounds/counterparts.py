"""One click from a run to a comparison with its counterpart, found among this session's runs or run first; and to the
plain run that its speed-up is measured against."""

from __future__ import annotations

from html import escape

import streamlit as st

from core.errors import SpecLensError
from core.grammar import format_shape
from core.jobs.queue import JobView
from core.results.counterparts import Counterpart, counterparts
from core.results.matching import has_speed_up, plain_counterpart
from core.types import RunSpec
from pages.ui.kit import notices, parts
from pages.ui.kit.compare_link import query
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services, services
from pages.ui.kit.sides import MOST

PAGE = "pages/compare.py"

TICK_S = 1.0
"""Seconds between redraws of the line about a plain run in progress. The rest of the page is not redrawn."""


def section(app: Services, run: Shown, chosen: tuple[str, ...] = ()) -> None:
    """Draw each counterpart with its reason and its button. ``chosen``: runs already compared; counterparts among them
    are left out, and a click adds to them."""
    if run.active or run.summary is None:
        return
    found = [(other, _at_hand(app, run, other)) for other in counterparts(run.spec.request)]
    found = [(other, there) for other, there in found if there not in chosen]
    if not found:
        return
    st.html('<h3 class="sl-h">Compare with</h3>')
    with st.container(key=f"counterparts_{run.run_id}"):
        for other, there in found:
            _line(app, run, other, there, chosen)


def _line(app: Services, run: Shown, other: Counterpart, there: str | None, chosen: tuple[str, ...]) -> None:
    with parts.headline(f"counterpart_{other.kind}"):
        st.html(f'<p class="sl-reason">{escape(other.reason)} <small>{_state(app, run, there)}</small></p>')
        if st.button(label(other), icon=":material/compare_arrows:", key=f"compare_{other.kind}"):
            try:
                ids = start(app, run, other)
            except SpecLensError as error:
                st.html(parts.note("bad", str(error)))
                return
            together = list(dict.fromkeys([*chosen, *ids]))[-MOST:]
            st.switch_page(PAGE, query_params=query(together, _base(ids, other)))


def label(other: Counterpart) -> str:
    """The button's label."""
    match other.kind:
        case "plain":
            return "Plain"
        case "lossless":
            return "Lossless"
        case _:
            return format_shape(other.request.shape)


def start(app: Services, run: Shown, other: Counterpart) -> tuple[str, str]:
    """Ids of ``run`` and its counterpart, which is submitted if this session has none.

    If a run of an earlier session has no counterpart from that session, both are run now: seconds of two sessions are
    not compared. Raises what ``submit`` raises.
    """
    there = _at_hand(app, run, other)
    if there is not None:
        return run.run_id, there
    mine = run.run_id
    if run.session != app.session:
        mine = _find(app, run.spec, app.session) or app.jobs.submit(run.spec)
    spec = RunSpec(pair=run.spec.pair, request=other.request)
    return mine, _find(app, spec, app.session) or app.jobs.submit(spec)


def _base(ids: tuple[str, str], other: Counterpart) -> str:
    """Id of the baseline: the plain, lossless or chain counterpart; the run itself if the counterpart is a tree."""
    run, counterpart = ids
    return run if other.kind == "tree" else counterpart


def _at_hand(app: Services, run: Shown, other: Counterpart) -> str | None:
    """Id of the counterpart in the run's own session, done, queued or running."""
    return _find(app, RunSpec(pair=run.spec.pair, request=other.request), run.session)


def _find(app: Services, spec: RunSpec, session: str) -> str | None:
    stored = app.runs.of_spec(spec, session) if app.runs else None
    if stored is not None:
        return stored.run_id
    if session != app.session:
        return None
    return next((view.run_id for view in app.jobs.active() if view.spec == spec), None)


def _state(app: Services, run: Shown, there: str | None) -> str:
    if there is not None:
        active = {view.run_id for view in app.jobs.active()}
        return "It is being measured." if there in active else "It has been measured."
    if run.session != app.session:
        return "Timings from different sessions aren't comparable, so both will be run again."
    return "It will be run now."


# -- the plain run that a speed-up is measured against ----------------------------------------------------------------


def offer_plain(app: Services, run: Shown) -> None:
    """Draw why the run has no measured speed-up yet, with the next step."""
    if not has_speed_up(run):
        return
    if app.runs is None:
        st.html(parts.note("info", "The speed-up needs a stored plain run, and runs are not being kept now."))
    elif run.session != app.session:
        text = "No matched plain run was measured in this run's session. Run both again on Live to compare them."
        st.html(parts.note("info", text))
    elif _plain_under_way(app, run.spec) is not None:
        st.fragment(_measuring, run_every=TICK_S)(run.run_id, run.spec)
    else:
        with st.container(horizontal=True, vertical_alignment="center", key="baseline"):
            st.html(parts.note("info", "Not measured against plain decoding yet."))
            if st.button("Measure plain", icon=":material/speed:", key="measure_plain"):
                app.jobs.submit(_plain_of(run.spec))
                st.rerun(scope="app")


def _plain_under_way(app: Services, spec: RunSpec) -> JobView | None:
    """The plain run that a run of ``spec`` is measured against, while queued or running."""
    plain = _plain_of(spec)
    return next((view for view in app.jobs.active() if view.spec == plain), None)


def _plain_of(spec: RunSpec) -> RunSpec:
    """Specification of the plain run that a run of ``spec`` is measured against."""
    return RunSpec(pair=spec.pair, request=plain_counterpart(spec.request))


@notices.told
def _measuring(run_id: str, spec: RunSpec) -> None:
    app = services()
    view = _plain_under_way(app, spec)
    if view is None:
        app.flush()  # the run has just ended: its row may not be written yet
        st.rerun(scope="app")
        return
    where = f"number {view.position} in the queue" if view.status == "queued" else f"{view.rounds} rounds so far"
    st.html(parts.note("info", f"Measuring plain decoding of the same prompt: {where}."))
