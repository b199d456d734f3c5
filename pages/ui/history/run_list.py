"""History's list: filter, order and columns from the address, the runs, and actions on selected runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component
from streamlit.delta_generator import DeltaGenerator

from pages.ui.history import exporting, filters, labelling, link, tables
from pages.ui.history.link import View
from pages.ui.kit import compare_link, notices, numbers, parts
from pages.ui.kit.services import Services, services
from pages.ui.kit.sides import MOST
from storage.filters import RunFilter
from storage.queries import Runs

PAGE = 25
"""Runs on one page of the table."""

TICK_S, REST_S = 2.0, 10.0
"""Seconds between reads of the rows in view, while a run is decoding here and otherwise."""

MAX_SELECTED = 1_000
"""Most runs selected at once."""

PAGES, SELECTED, WRITTEN, REFRESH = "history_page", "history_selected", "history_written", "history_refresh"
_COPY = Path(__file__).with_name("copy_link.js").read_text(encoding="utf-8")


def draw(app: Services, runs: Runs) -> None:
    """Draw the whole list."""
    wrong = _arrive()
    labelling.announce_deletion()
    filters.bar(runs.facets())
    view = filters.current()
    asked = filters.run_filter(view)
    count = runs.count(asked)
    with parts.headline("history_head"):
        found = st.empty()
        with st.container(horizontal=True, vertical_alignment="center", width="content", key="history_tools"):
            filters.shelf()
            st.button("Refresh", icon=":material/refresh:", key=REFRESH, help="Read the list again.")
            with st.popover("Columns", icon=":material/view_column:"):
                filters.columns()
            _copy_button()
            if count:
                exporting.draw(app, asked, count)
    _write(view)
    if wrong:
        which = "; ".join(wrong)
        st.html(parts.note("warn", f"The link asks for what History does not have: {which}. The rest of it is shown."))
    if not count:
        _count(found, count)
        _nothing(runs, view)
    _selection(app, runs, asked, count)
    if count:
        every = TICK_S if app.jobs.active() else REST_S
        st.fragment(_rows, run_every=every)(view, found)


# -- the address -------------------------------------------------------------------------------------------------------


def _arrive() -> list[str]:
    """Set the fields from the address if it has changed; return its invalid parts.

    On return from another page the address is empty and the fields keep their values.
    """
    asked = {name: st.query_params.get_all(name) for name in link.NAMES if name in st.query_params}
    here = REFRESH in st.session_state  # a button's state is lost when another page is drawn
    if asked == st.session_state.get(WRITTEN) or (not asked and not here):
        return []
    view, wrong = link.read(asked)
    filters.put(view)
    st.session_state[WRITTEN] = asked
    return wrong


def _write(view: View) -> None:
    """Write the view into the address."""
    wanted = link.query(view)
    now = {name: st.query_params.get_all(name) for name in st.query_params}
    others = {name: values for name, values in now.items() if name not in link.NAMES}
    if now != others | wanted:
        st.query_params.from_dict(others | wanted)  # at once: one step for the browser's Back
    st.session_state[WRITTEN] = wanted


def _copy_button() -> None:
    """Draw the button that copies the address, or shows it in a browser that forbids copying."""
    _copy_component()(
        key="history_copy",
        data={"tip": "Copy a link to this search, its filters, order and columns."},
        width="content",
        height="content",
    )


def _copy_component() -> Any:
    return component("speclens.copy_link", html='<div class="sl-copy"></div>', js=_COPY, isolate_styles=False)


# -- the rows ----------------------------------------------------------------------------------------------------------


@notices.told
def _rows(view: View, found: DeltaGenerator) -> None:
    """Draw the chosen page of rows, read again at every tick; ``found`` shows the number of runs."""
    runs = services().runs
    if runs is None:
        return
    asked = filters.run_filter(view)
    count = runs.count(asked)
    if not count:
        st.rerun(scope="app")
    _count(found, count)
    pages = -(-count // PAGE)
    key = f"{PAGES}_{view.sort}_{view.descending}"  # another order starts at its first page
    place = min(int(st.session_state.get(key, 1)), pages)
    shown = runs.list(asked, view.sort, view.descending, PAGE, (place - 1) * PAGE)
    selected = selection()
    done = tables.runs_table(shown, view.sort, view.descending, view.columns, set(selected))
    if pages > 1:
        st.pagination(pages, key=key)
    if done.selected is not None:
        in_view = {run.run_id for run in shown}
        kept = [run_id for run_id in selected if run_id not in in_view]
        select([*kept, *(run_id for run_id in done.selected if run_id in in_view)])
    if done.open:
        st.query_params["run"] = done.open
    if done.sort in tables.SORTS:
        first = done.sort not in tables.ASCENDING_FIRST
        filters.order_by(done.sort, not view.descending if done.sort == view.sort else first)
    if done.selected is not None or done.open or done.sort:
        st.rerun(scope="app")


def _count(found: DeltaGenerator, count: int) -> None:
    text = f"{numbers.quantity(count)} {'run' if count == 1 else 'runs'}"
    found.html(f'<h3 class="sl-h" data-count="{count}">{text}</h3>', width="content")


def _nothing(runs: Runs, view: View) -> None:
    """Draw the empty state: no run matches, or there are no runs at all."""
    if runs.count(RunFilter(archived=None)):
        more = " Archived runs are hidden." if view.archived == "no" else ""
        st.html(parts.empty("No run matches", f"Change or clear the filters to see more runs.{more}"))
        st.button("Clear the filters", icon=":material/filter_alt_off:", on_click=filters.clear, key="history_clear")
    else:
        st.html(parts.empty("No runs yet", "Every run of the Live page is kept here, with each of its rounds."))
        st.page_link("pages/live.py", label="Go to Live", icon=":material/play_circle:")


# -- the selection -----------------------------------------------------------------------------------------------------


def selection() -> list[str]:
    """Selected runs, in the order of selection."""
    return list(st.session_state.get(SELECTED, ()))


def select(run_ids: Sequence[str]) -> None:
    """Select these runs, at most :data:`MAX_SELECTED`."""
    st.session_state[SELECTED] = list(dict.fromkeys(run_ids))[:MAX_SELECTED]


def _selection(app: Services, runs: Runs, asked: RunFilter, count: int) -> None:
    """Draw the actions for the selected runs; runs deleted meanwhile are removed from the selection."""
    chosen = selection()
    if not chosen:
        return
    labels = runs.labels(chosen)
    chosen = [run_id for run_id in chosen if run_id in labels]
    select(chosen)
    if not chosen:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="history_selection"):
        st.html(f'<b class="sl-h" data-selected="{len(chosen)}">{numbers.quantity(len(chosen))} selected</b>',
                width="content")  # fmt: skip
        most = MOST
        fits = len(chosen) <= most
        tip = "Side by side, the first as the baseline." if fits else f"At most {most} runs are compared."
        if st.button("Compare", icon=":material/compare_arrows:", disabled=not fits, help=tip, key="selection_compare"):
            st.switch_page("pages/compare.py", query_params=compare_link.query(chosen))
        labelling.buttons(app, {run_id: labels[run_id] for run_id in chosen}, "selection")
        if len(chosen) < min(count, MAX_SELECTED):
            label = f"Select all {numbers.quantity(count)}" if count <= MAX_SELECTED else f"Select {MAX_SELECTED:,}"
            st.button(label, on_click=lambda: select(runs.ids(asked, MAX_SELECTED)), type="tertiary",
                      help="Every run that matches, newest first.", key="selection_all")  # fmt: skip
        st.button("Clear", on_click=select, args=((),), type="tertiary", key="selection_none")
