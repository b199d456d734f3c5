"""The speed-up of a run: measured against a matched plain run of its session, or the button that measures one."""

from __future__ import annotations

import streamlit as st

from core.jobs.queue import JobView
from core.results.matching import plain_counterpart, speed_up
from core.types import RunSpec
from pages.ui.kit import parts, services
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services

TICK_S = 1.0
"""How often the line about a plain run under way is drawn. The rest of the page stands still meanwhile."""


def measured(app: Services, run: Shown) -> float | None:
    """The ratio to the matched plain run of the run's session; None while there is none."""
    if not _comparable(run) or app.runs is None or run.summary is None or run.fingerprint is None:
        return None
    plain = app.runs.plain_for(run.fingerprint, run.session)
    return speed_up(run.summary, plain.summary) if plain is not None and plain.summary is not None else None


def offer(app: Services, run: Shown) -> None:
    """Why there is no ratio yet, with the next step."""
    if not _comparable(run):
        return
    if app.runs is None:
        st.html(parts.note("info", "The speed-up needs a stored plain run, and runs are not being kept now."))
    elif run.session != app.session:
        said = "No matched plain run was measured in this run's session. Run both again on Live to compare them."
        st.html(parts.note("info", said))
    elif under_way(app, run.spec) is not None:
        st.fragment(_progress, run_every=TICK_S)(run.run_id, run.spec)
    else:
        with st.container(horizontal=True, vertical_alignment="center", key="baseline"):
            st.html(parts.note("info", "No matched plain run yet: the speed-up is unknown."))
            if st.button("Measure plain", icon=":material/speed:", key="measure_plain"):
                app.jobs.submit(baseline(run.spec))
                st.rerun(scope="app")


def under_way(app: Services, spec: RunSpec) -> JobView | None:
    """The plain run that measures this one, while it is queued or running."""
    plain = baseline(spec)
    return next((view for view in app.jobs.active() if view.spec == plain), None)


def baseline(spec: RunSpec) -> RunSpec:
    """The plain run that this one is measured against."""
    return RunSpec(pair=spec.pair, request=plain_counterpart(spec.request))


def _comparable(run: Shown) -> bool:
    return not run.plain and run.status == "done" and run.fingerprint is not None


def _progress(run_id: str, spec: RunSpec) -> None:
    app = services.services()
    view = under_way(app, spec)
    if view is None:
        app.flush()  # a moment ago it ended: its row is on the way
        st.rerun(scope="app")
        return
    where = f"number {view.position} in the queue" if view.status == "queued" else f"{view.rounds} rounds so far"
    st.html(parts.note("info", f"Measuring plain decoding of the same prompt: {where}."))
