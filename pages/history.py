"""History: every run that was kept. Find, open, replay, label, export and delete; no model is needed."""

from __future__ import annotations

import streamlit as st

from core.errors import SpecLensError
from pages.ui.history import labelling, replay, run_list
from pages.ui.kit import notices, numbers, parts
from pages.ui.kit.runs import Shown, find, valid_id
from pages.ui.kit.services import Services, reopen, services
from pages.ui.rounds import run_view
from storage.labels import Labels

TICK_S = 1.0
"""How often a run that is still going is drawn, in seconds."""

SHOW, WHOLE, REPLAY = "show", "whole", "replay"
SHOWS = {WHOLE: "Whole run", REPLAY: "Replay"}


def page() -> None:
    """The list, or the run that the address names."""
    app = services()
    notices.faults(app)
    if app.runs is None:
        closed()
        return
    try:
        asked = st.query_params.get("run")
        if asked is None:
            for text in app.keeper.notes if app.keeper is not None else ():
                st.html(parts.note("info", text))
            run_list.draw(app, app.runs)
        else:
            opened(app, asked)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
        if st.button("Try again", icon=":material/refresh:"):
            st.rerun()


def closed() -> None:
    """The database could not be opened."""
    st.html(parts.empty("History can't be read", "Fix the problem above, then try again."))
    if st.button("Open again", icon=":material/refresh:", help="Runs in flight end as interrupted."):
        reopen()
        st.rerun()


def opened(app: Services, asked: str) -> None:
    """One run, round by round, from the store."""
    head = st.container(horizontal=True, vertical_alignment="center", key="opened_head")
    with head:
        if st.button("All runs", icon=":material/arrow_back:", key="back"):
            _back()
    run_id = valid_id(asked)
    run = find(app, run_id) if run_id else None
    if run is None or app.runs is None:
        if labelling.DELETED in st.session_state:  # it was deleted from here: the list announces it
            _back()
        st.html(parts.empty("No such run", parts.UNKNOWN_RUN))
        return
    labels = app.runs.labels([run.run_id])
    written = labels.get(run.run_id)
    with head:
        st.html(labelling.head(written, run.run_id, numbers.moment(run.submitted_at)), width="content")
        with st.container(horizontal=True, width="content", key="opened_actions"):
            labelling.buttons(app, labels, "opened")
    with st.container(key="opened_columns"):
        left, right = st.columns([1, 2.4], gap="medium", wrap=False)
    with left:
        _asked(run, written)
    with right:
        show = _choice(run)
        if show == REPLAY:
            replay.draw(run)
        else:
            st.fragment(_drawn, run_every=TICK_S if run.active else None)(run.run_id, run.active)


def _back() -> None:
    for name in ("run", SHOW):
        if name in st.query_params:
            del st.query_params[name]
    st.rerun()


def _asked(run: Shown, written: Labels | None) -> None:
    """What people wrote on it and what was asked of it."""
    st.page_link("pages/live.py", label="Show on Live", icon=":material/play_circle:", query_params={"run": run.run_id})
    if written is not None and (said := labelling.written(written)):
        st.html(said)
    st.html('<h3 class="sl-h">Settings</h3>' + parts.pairs_list(parts.settings(run.spec)))
    with st.expander("Prompt"):
        st.code(run.spec.request.prompt, language=None, wrap_lines=True)


def _choice(run: Shown) -> str:
    """Whole, or round by round; the address keeps the choice."""
    if run.active or not run.total:
        return WHOLE
    key = f"show_{run.run_id}"
    st.session_state.setdefault(key, REPLAY if st.query_params.get(SHOW) == REPLAY else WHOLE)
    show = st.segmented_control("Show", list(SHOWS), format_func=SHOWS.__getitem__, required=True,
                                label_visibility="collapsed", key=key)  # fmt: skip
    if show == REPLAY:
        st.query_params[SHOW] = REPLAY
    elif SHOW in st.query_params:
        del st.query_params[SHOW]
    return show or WHOLE


@notices.told
def _drawn(run_id: str, ticking: bool) -> None:
    app = services()
    run = find(app, run_id)
    if run is None:
        return
    run_view.draw(app, run)
    if ticking and not run.active:
        st.rerun(scope="app")


page()
