"""Export of all matching runs: written to a file in the background, then offered as a download."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import streamlit as st

from core.errors import SpecLensError
from pages.ui.kit import numbers, parts
from pages.ui.kit.services import Services, services
from storage.export.background import ExportView
from storage.export.dictionary import Format, TableName
from storage.filters import RunFilter

TICK_S = 0.5
"""Seconds between progress updates while a file is being written."""

ASKED = "history_export"
"""Session state: the last requested export, with its filter and format."""

WHAT: dict[TableName | Literal["all"], str] = {
    "all": "All tables and their data dictionary",
    "runs": "Runs",
    "rounds": "Rounds",
    "candidates": "Candidates",
}
FORMATS: dict[Format, str] = {"csv": "CSV", "parquet": "Parquet"}
MIME = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".zip": "application/zip"}


def draw(app: Services, asked: RunFilter, count: int) -> None:
    """Draw the menu that exports all ``count`` runs that match ``asked``."""
    if app.exports is None:
        return
    with st.popover("Export", icon=":material/download:"):
        st.fragment(_choice)(asked, count)


def _choice(asked: RunFilter, count: int) -> None:
    exports = services().exports
    if exports is None:
        return
    st.caption(f"{_all(count)}, not only those in view.")
    what = st.radio("What", list(WHAT), format_func=WHAT.__getitem__, key="export_what") or "all"
    kinds = get_args(Format)
    format = st.radio("Format", kinds, format_func=FORMATS.__getitem__, horizontal=True, key="export_format") or "csv"
    table = None if what == "all" else what
    wanted = (asked, table, format)
    begun = st.session_state.get(ASKED)
    view = exports.view(begun[0]) if begun and begun[1] == wanted else None
    label = "Create file" if view is None or view.status != "ready" else "Create again"
    running = view is not None and view.status == "running"
    if st.button(label, icon=":material/draft:", disabled=running, width="stretch", key="export_make"):
        try:
            st.session_state[ASKED] = (exports.start(asked, table, format), wanted)
        except SpecLensError as error:
            st.html(parts.note("bad", str(error)))
            return
        view = exports.view(st.session_state[ASKED][0])
    if view is not None:
        running = view.status == "running"
        st.fragment(_state, run_every=TICK_S if running else None)(view.export_id, running)


def _state(export_id: str, ticking: bool) -> None:
    """Draw the export's progress, its outcome, and the file."""
    exports = services().exports
    view = exports.view(export_id) if exports is not None else None
    if exports is None or view is None:
        return
    if view.status == "running":
        st.progress(view.share, text=_progress(view))
        if st.button("Stop", icon=":material/stop:", width="stretch", key="export_stop"):
            exports.stop(export_id)
        return
    if ticking:
        st.rerun(scope="app")  # draws once more, without the ticking
    if view.status == "failed":
        st.html(parts.note("bad", view.problem, "No file was made."))
    elif view.status == "stopped":
        st.html(parts.note("info", "Stopped: no file was made."))
    else:
        _file(view)


def _file(view: ExportView) -> None:
    size = numbers.size(view.size)
    if not view.path.is_file():
        st.html(parts.note("warn", f"{view.path} is not there any more: make the file again."))
    elif view.large:
        text = f"{size} are more than a browser is handed here: the file is kept at {view.path}."
        st.html(parts.note("info", text))
    else:
        st.download_button(
            f"Download ({size})",
            data=partial(view.path.open, "rb"),
            file_name=view.path.name,
            mime=MIME[view.path.suffix],
            on_click="ignore",
            type="primary",
            icon=":material/download:",
            width="stretch",
            key="export_file",
        )


def _progress(view: ExportView) -> str:
    """Rows, time so far and time left."""
    left = "" if view.left_s is None else f" · about {numbers.seconds(view.left_s)} left"
    rows = f"{numbers.quantity(view.rows)} of {numbers.quantity(view.total)} rows" if view.total else "starting"
    return f"{rows} · {numbers.seconds(view.seconds)}{left}"


def _all(count: int) -> str:
    return "The one matching run" if count == 1 else f"All {numbers.quantity(count)} matching runs"
