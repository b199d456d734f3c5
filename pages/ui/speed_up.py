"""The speed-up of a run: measured against a matched plain run of this session, or the button that measures one."""

from __future__ import annotations

import streamlit as st

from core.matching import plain_counterpart, speed_up
from core.types import RunSpec
from pages.ui import parts
from pages.ui.runs import Shown
from pages.ui.services import Services


def speed_up_part(services: Services, run: Shown) -> float | None:
    """The ratio if it is measured; otherwise draws why not, with the next step, and gives None."""
    if run.active or run.summary is None or run.fingerprint is None or run.status != "done":
        return None
    if services.runs is None:
        st.html(parts.note("info", "The speed-up needs a stored plain run, and runs are not being kept now."))
        return None
    plain = services.runs.plain_for(run.fingerprint, run.session)
    if plain is not None and plain.summary is not None:
        return speed_up(run.summary, plain.summary)
    if run.session != services.session:
        st.html(
            parts.note(
                "info",
                "No matched plain run was measured in this run's session. Run both again on Live to compare them.",
            )
        )
        return None
    spec = baseline(run.spec)
    busy = next((view for view in services.jobs.active() if view.spec == spec), None)
    with st.container(horizontal=True, vertical_alignment="center", key="baseline"):
        if busy is not None:
            where = (
                f"number {busy.position} in the queue" if busy.status == "queued" else f"{busy.rounds} rounds so far"
            )
            st.html(parts.note("info", f"Measuring plain decoding of the same prompt: {where}."))
        else:
            st.html(parts.note("info", "No matched plain run yet: the speed-up is unknown."))
            if st.button("Measure plain", icon=":material/speed:", key="measure_plain"):
                services.jobs.submit(spec)
                st.rerun(scope="app")
    return None


def measuring(services: Services, run: Shown) -> bool:
    """The matched plain run of this run is queued or running."""
    return not run.plain and any(view.spec == baseline(run.spec) for view in services.jobs.active())


def baseline(spec: RunSpec) -> RunSpec:
    """The plain run that this one is measured against."""
    return RunSpec(pair=spec.pair, request=plain_counterpart(spec.request))
