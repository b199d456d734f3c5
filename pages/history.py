"""History: every run that was kept. Filter, sort, open, export; no model is needed."""

from __future__ import annotations

import streamlit as st

from core.errors import SpecLensError
from pages.ui import filters, numbers, parts, run_view, tables
from pages.ui import services as root
from pages.ui.runs import find, valid_id
from pages.ui.services import RunsLike, Services
from storage.dictionary import TableName
from storage.filters import RunFilter

PAGE = 25
"""Runs on one page of the table."""

TICK_S = 1.0
"""How often a run that is still going is drawn, in seconds."""

SORT, DOWN, PAGES = "history_sort", "history_descending", "history_page"
EXPORTS: dict[TableName, str] = {"runs": "Runs", "rounds": "Rounds", "candidates": "Candidates"}


def page() -> None:
    """The list, or the run that the address names."""
    app = root.services()
    why = app.trouble()
    if why:
        st.html(parts.note("bad", why, "Runs are not being kept."))
    if app.runs is None:
        closed()
        return
    try:
        asked = st.query_params.get("run")
        if asked is None:
            listing(app, app.runs)
        else:
            opened(app, asked)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
        if st.button("Try again", icon=":material/refresh:"):
            st.rerun()


def closed() -> None:
    """The database could not be opened."""
    st.html(parts.empty("History can't be read", "Put right what the sentence above names, then open it again."))
    if st.button("Open again", icon=":material/refresh:", help="Runs in flight end as interrupted."):
        root.reopen()
        st.rerun()


def listing(app: Services, runs: RunsLike) -> None:
    """Filter, table, pages, export."""
    asked = filters.bar(runs.facets())
    count = runs.count(asked)
    with parts.headline("history_head"):
        found = f"{numbers.quantity(count)} {'run' if count == 1 else 'runs'}"
        st.html(f'<h3 class="sl-h" data-count="{count}">{found}</h3>', width="content")
        if count:
            exporting(app, asked, count)
    if not count:
        nothing(runs)
        return
    sort = st.session_state.setdefault(SORT, "submitted_at")
    descending = st.session_state.setdefault(DOWN, True)
    pages = -(-count // PAGE)
    key = f"{PAGES}_{sort}_{descending}"  # another order starts at its first page
    place = min(int(st.session_state.get(key, 1)), pages)
    clicked, chosen = tables.runs_table(runs.list(asked, sort, descending, PAGE, (place - 1) * PAGE), sort, descending)
    if pages > 1:
        st.pagination(pages, key=key)
    if chosen:
        st.query_params["run"] = chosen
        st.rerun()
    if clicked:
        st.session_state[DOWN] = not descending if clicked == sort else clicked not in {"pair", "prompt", "drafter"}
        st.session_state[SORT] = clicked
        st.rerun()


def nothing(runs: RunsLike) -> None:
    """No run matches, or there is none at all."""
    if runs.count(RunFilter()):
        st.html(parts.empty("No run matches", "Loosen the filter to see more runs."))
        st.button("Clear the filter", icon=":material/filter_alt_off:", on_click=filters.clear)
    else:
        st.html(parts.empty("No runs yet", "Every run of the Live page is kept here, with each of its rounds."))
        st.page_link("pages/live.py", label="Go to Live", icon=":material/play_circle:")


def exporting(app: Services, asked: RunFilter, count: int) -> None:
    """CSV of the whole matched set, built when it is asked for."""
    with st.popover("Export CSV", icon=":material/download:"):
        st.caption(f"All {numbers.quantity(count)} matching runs, not only those in view.")
        for table, label in EXPORTS.items():
            st.download_button(
                label,
                data=lambda table=table: app.export(asked, table),
                file_name=f"speclens-{table}.csv",
                mime="text/csv",
                on_click="ignore",
                width="stretch",
                key=f"export_{table}",
            )


def opened(app: Services, asked: str) -> None:
    """One run, round by round, from the store."""
    head = st.container(horizontal=True, vertical_alignment="center", key="opened_head")
    with head:
        if st.button("All runs", icon=":material/arrow_back:", key="back"):
            del st.query_params["run"]
            st.rerun()
    run_id = valid_id(asked)
    run = find(app, run_id) if run_id else None
    if run is None:
        st.html(parts.empty("No such run", parts.UNKNOWN_RUN))
        return
    with head:
        st.html(f'<h3 class="sl-h">Run of {numbers.moment(run.submitted_at)} <small>{run.run_id}</small></h3>')
    with st.container(key="opened_columns"):
        left, right = st.columns([1, 2.4], gap="medium", wrap=False)
    with left:
        link = {"run": run.run_id}
        st.page_link("pages/live.py", label="Show on Live", icon=":material/play_circle:", query_params=link)
        st.html('<h3 class="sl-h">Settings</h3>' + parts.pairs_list(parts.settings(run.spec)))
        with st.expander("Prompt"):
            st.code(run.spec.request.prompt, language=None, wrap_lines=True)
    with right:
        st.fragment(_drawn, run_every=TICK_S if run.active else None)(run.run_id, run.active)


def _drawn(run_id: str, ticking: bool) -> None:
    app = root.services()
    run = find(app, run_id)
    if run is None:
        return
    run_view.draw(app, run)
    if ticking and not run.active:
        st.rerun(scope="app")


page()
