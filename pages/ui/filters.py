"""History's filter: fields to a :class:`storage.filters.RunFilter`."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

import streamlit as st

from pages.ui import palette
from storage.filters import RunFilter
from storage.queries import Facets

KEY = "history_"


def bar(facets: Facets) -> RunFilter:
    """Draws the filter and gives what it asks for."""
    text = st.text_input(
        "Search",
        placeholder="Search prompt, output or run id",
        label_visibility="collapsed",
        icon=":material/search:",
        **_key("text"),
    )
    with st.container(horizontal=True, key="history_filters"):
        status = st.multiselect("Status", list(palette.STATUSES), placeholder="Any status", **_key("status"))
        pair = _facet("Pair", "Any pair", "pair", facets.pair)
        drafter = _facet("Drafter", "Any drafter", "drafter", facets.drafter)
        shape = _facet("Shape", "Any shape", "shape", facets.shape)
        rule = _facet("Rule", "Any rule", "rule", facets.rule)
        since = st.date_input("From", value=None, format="YYYY-MM-DD", **_key("since"))
        until = st.date_input("To", value=None, format="YYYY-MM-DD", **_key("until"))
    return RunFilter(
        status=status or None,
        pair=pair or None,
        drafter=drafter or None,
        shape=shape or None,
        rule=rule or None,
        text=text or None,
        since=_midnight(since) if isinstance(since, date) else None,
        until=_midnight(until + timedelta(days=1)) if isinstance(until, date) else None,
    )


def clear() -> None:
    """Take every condition away."""
    for name in ("text", "status", "pair", "drafter", "shape", "rule", "since", "until"):
        st.session_state[KEY + name] = {"text": "", "since": None, "until": None}.get(name, [])


def _facet(label: str, placeholder: str, name: str, options: tuple[str, ...]) -> list[str]:
    chosen = st.session_state.get(KEY + name) or []
    missing = [value for value in chosen if value not in options]
    return st.multiselect(label, [*options, *missing], placeholder=placeholder, **_key(name))


def _midnight(day: date) -> datetime:
    """The day's beginning in the machine's time zone, as the table shows moments."""
    return datetime.combine(day, time()).astimezone()


def _key(name: str) -> dict[str, Any]:
    return {"key": KEY + name, "persist_state": "session"}
