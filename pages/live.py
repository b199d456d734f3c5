"""Live: ask for a run, watch its rounds stream, stop it. form → ``jobs.submit`` → draw."""

from __future__ import annotations

import streamlit as st

from core.errors import SpecLensError
from pages.ui import forms, parts, run_view
from pages.ui.form_values import values_of
from pages.ui.runs import Shown, find, valid_id
from pages.ui.services import Services, services

TICK_S = 0.5
"""How often the page draws while something runs. The run itself does not depend on anyone looking."""

LAST = "live_run"


def page() -> None:
    """The whole page."""
    app = services()
    trouble(app)
    before = st.session_state.get(LAST)
    run = chosen(app)
    if run is None:
        forms.fill({})
    else:  # another run than the one of a moment ago, by link or reload: its settings are what the form should show
        forms.fill(values_of(run.spec), over=run.run_id != before)
    with st.container(key="live_columns"):
        left, right = st.columns([1, 2.4], gap="medium", wrap=False)
    with left, st.container(key="form"):
        form(app, run)
    with right:
        watched(app, run)


def trouble(app: Services) -> None:
    """Says when runs are not being kept."""
    why = app.trouble()
    if why:
        st.html(parts.note("bad", why, "Runs are not being kept."))


def chosen(app: Services) -> Shown | None:
    """The run to show: the link's, else the one shown last, else the newest active one of this app."""
    asked = st.query_params.get("run")
    active = [view.run_id for view in app.jobs.active()]
    for run_id in (valid_id(asked), st.session_state.get(LAST), *reversed(active)):
        run = found(app, run_id) if run_id else None
        if run is not None:
            show(run.run_id)
            return run
    if asked is not None:
        st.html(parts.note("warn", parts.UNKNOWN_RUN))
    return None


def found(app: Services, run_id: str) -> Shown | None:
    """The run; a store that can't be read just now says so and counts as not found."""
    try:
        return find(app, run_id)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
        return None


def show(run_id: str) -> None:
    """Make this the run of this page, here and in the address."""
    st.session_state[LAST] = run_id
    if st.query_params.get("run") != run_id:
        st.query_params["run"] = run_id


def form(app: Services, run: Shown | None) -> None:
    """Prompt, Run and Stop, settings."""
    forms.prompt_part(app.pairs())
    actions = st.container(horizontal=True, key="actions")
    said = st.empty()
    forms.settings_part()
    asked = forms.read()
    with actions:
        start = st.button(
            "Run",
            type="primary",
            icon=":material/play_arrow:",
            disabled=isinstance(asked, str),
            shortcut="Ctrl+Enter",
            key="run",
        )
        stop = st.button("Stop", icon=":material/stop:", disabled=run is None or not run.active, key="stop")
    if isinstance(asked, str):
        said.html(parts.note("bad", asked))
    elif start:
        try:
            show(app.jobs.submit(asked))
        except SpecLensError as error:
            said.html(parts.note("bad", str(error)))
        else:
            st.rerun()
    if stop and run is not None:
        app.jobs.cancel(run.run_id)
        st.rerun()


def watched(app: Services, run: Shown | None) -> None:
    """The run, drawn again and again while it is active."""
    if run is None:
        st.html(parts.empty("No run yet", "Press Run to decode the prompt and watch how each candidate fares."))
        return
    st.fragment(_drawn, run_every=TICK_S if run.active else None)(run.run_id, run.active)


def _drawn(run_id: str, ticking: bool) -> None:
    app = services()
    run = found(app, run_id)
    if run is None:
        return
    run_view.draw(app, run)
    if ticking and not run.active:
        st.rerun(scope="app")  # draws once more, without the ticking


page()
