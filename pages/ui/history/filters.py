"""History's filter: from fields to a :class:`pages.ui.history.link.View`, and from the view to a storage filter."""

from __future__ import annotations

from dataclasses import fields
from datetime import date, datetime, time, timedelta
from typing import Any

import streamlit as st

from pages.ui.history.link import ARCHIVED, EARLIEST, LATEST, MAX_TEXT, USUAL, Archived, View
from pages.ui.history.tables import COLUMNS
from pages.ui.kit import palette
from pages.ui.kit.glyphs import plain_glyphs
from storage.filters import RunFilter
from storage.queries import Facets

KEY = "history_"

KEPT = ("sort", "descending")
"""Parts of the view without a field, which the table's headings set."""

ARCHIVED_LABELS: dict[Archived, str] = {"no": "Active", "only": "Archived", "all": "Active and archived"}


def bar(facets: Facets) -> None:
    """Draw the fields."""
    st.text_input(
        "Search",
        placeholder="Search name, note, prompt, output or run id",
        label_visibility="collapsed",
        icon=":material/search:",
        max_chars=MAX_TEXT,
        **_key("text"),
    )
    with st.container(horizontal=True, key="history_filters"):
        st.multiselect(
            "Status",
            list(palette.STATUSES),
            placeholder="Any status",
            format_func=lambda name: palette.STATUSES[name].label,
            **_key("status"),
        )
        _facet("Tag", "Any tag", "tag", facets.tag)
        _facet("Pair", "Any pair", "pair", facets.pair)
        _facet("Drafter", "Any drafter", "drafter", facets.drafter)
        _facet("Shape", "Any shape", "shape", facets.shape)
        _facet("Rule", "Any rule", "rule", facets.rule)
        days = {"min_value": EARLIEST, "max_value": LATEST, "format": "YYYY-MM-DD"}
        st.date_input("From", value=None, **days, **_key("since"))
        st.date_input("To", value=None, **days, **_key("until"))


def shelf() -> None:
    """Draw the choice between runs in use and archived runs."""
    st.selectbox(
        "Show",
        ARCHIVED,
        format_func=ARCHIVED_LABELS.__getitem__,
        label_visibility="collapsed",
        width=190,
        **_key("archived"),
    )


def columns() -> None:
    """Draw the choice of columns."""
    st.multiselect(
        "Columns",
        list(COLUMNS),
        format_func=lambda name: COLUMNS[name].label,
        placeholder="The usual columns",
        help="In the order in which they are chosen.",
        **_key("columns"),
    )
    st.button("Reset columns", icon=":material/restart_alt:", on_click=_usual_columns, key="history_usual")


def current() -> View:
    """The view that the fields describe now."""
    state = st.session_state
    found: dict[str, Any] = {}
    for field in fields(View):
        usual = getattr(USUAL, field.name)
        value = state.get(KEY + field.name, usual)
        found[field.name] = tuple(value) if isinstance(usual, tuple) else value
    found["text"] = (found["text"] or "").strip()
    found["columns"] = found["columns"] or USUAL.columns
    return View(**found)


def put(view: View) -> None:
    """Set the fields to ``view``; call before they are drawn, or in a callback."""
    for field in fields(View):
        value = getattr(view, field.name)
        st.session_state[KEY + field.name] = list(value) if isinstance(value, tuple) else value


def clear() -> None:
    """Remove every condition; order and columns stay."""
    now = current()
    put(View(sort=now.sort, descending=now.descending, columns=now.columns))


def order_by(sort: str, descending: bool) -> None:
    """Sort the list by another heading."""
    st.session_state[KEY + "sort"], st.session_state[KEY + "descending"] = sort, descending


def run_filter(view: View) -> RunFilter:
    """Storage filter for the runs that the view shows."""
    return RunFilter(
        status=view.status or None,
        pair=view.pair or None,
        drafter=view.drafter or None,
        shape=view.shape or None,
        rule=view.rule or None,
        tag=view.tag or None,
        text=view.text or None,
        since=_midnight(view.since) if view.since else None,
        until=_midnight(view.until + timedelta(days=1)) if view.until else None,
        archived={"no": False, "only": True, "all": None}[view.archived],
    )


def _usual_columns() -> None:
    st.session_state[KEY + "columns"] = list(USUAL.columns)


def _facet(label: str, placeholder: str, name: str, options: tuple[str, ...]) -> None:
    chosen = st.session_state.get(KEY + name) or []
    missing = [value for value in chosen if value not in options]
    # tags are typed by people: invisible characters are made visible
    shown = {value: plain_glyphs(value).replace("␣", " ") for value in [*options, *missing]}
    st.multiselect(label, list(shown), placeholder=placeholder, format_func=lambda value: shown[value], **_key(name))


def _midnight(day: date) -> datetime:
    """Start of the day in the machine's time zone, which the table uses for moments."""
    return datetime.combine(day, time()).astimezone()


def _key(name: str) -> dict[str, Any]:
    st.session_state.setdefault(KEY + name, list(v) if isinstance(v := getattr(USUAL, name), tuple) else v)
    return {"key": KEY + name, "persist_state": "session"}
