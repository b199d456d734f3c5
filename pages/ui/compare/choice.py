"""Choosing the runs and the baseline. The address holds the choice; the fields follow it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages.ui.kit import compare_link
from pages.ui.kit.compare_link import Link
from pages.ui.kit.services import Services
from pages.ui.kit.sides import MOST, Side, choice_label
from storage.filters import RunFilter

CHOSEN, BASELINE, SEARCH = "compare_chosen", "compare_baseline", "compare_search"

OFFERED = 200
"""Most runs in the list of choices: the newest, or the newest that match the search."""

ENDED = ("done", "cancelled", "failed", "interrupted")


def draw(services: Services, link: Link, sides: Sequence[Side]) -> None:
    """Draw the fields. ``sides``: the runs of the link that exist."""
    offered, more = _offered(services, sides)
    st.session_state[CHOSEN] = list(dict.fromkeys(side.run.run_id for side in sides))
    with st.container(key="compare_choice"):
        many, one = st.columns([3, 1], gap="medium", vertical_alignment="bottom")
    with many:
        if more or st.session_state.get(SEARCH):
            st.text_input(
                "Search",
                placeholder="Search name, note, prompt, output or run id among all runs",
                icon=":material/search:",
                label_visibility="collapsed",
                key=SEARCH,
            )
        st.multiselect(
            "Runs",
            list(offered),
            format_func=lambda run_id: str(offered.get(run_id, run_id)),
            max_selections=MOST,
            placeholder="Choose two to ten runs",
            select_all=False,
            wrap=True,
            key=CHOSEN,
            on_change=_choose,
        )
    with one:
        if len(sides) > 1:
            _baseline(link, sides)


def _baseline(link: Link, sides: Sequence[Side]) -> None:
    ids = list(dict.fromkeys(side.run.run_id for side in sides))
    first = {side.run.run_id: side for side in reversed(sides)}
    st.session_state[BASELINE] = link.base
    st.selectbox(
        "Baseline",
        ids,
        format_func=lambda run_id: first[run_id].name,
        key=BASELINE,
        on_change=_rebase,
    )


def _offered(services: Services, sides: Sequence[Side]) -> tuple[dict[str, str], bool]:
    """Run ids with their labels, chosen runs first; and whether there are more runs than offered."""
    chosen = {side.run.run_id: choice_label(side.run.spec, side.run.submitted_at, side.given) for side in sides}
    if services.runs is None:
        return chosen, False
    asked = RunFilter(status=ENDED, text=st.session_state.get(SEARCH) or None)
    stored = services.runs.list(asked, limit=OFFERED + 1)
    labels = {run.run_id: choice_label(run.spec, run.submitted_at, run.name) for run in stored[:OFFERED]}
    return chosen | labels, len(stored) > OFFERED


def _choose() -> None:
    put(st.session_state[CHOSEN], st.query_params.get(compare_link.BASE))


def _rebase() -> None:
    link = compare_link.read(st.query_params.get(compare_link.RUNS), None)
    put(link.runs, st.session_state[BASELINE])


def put(runs: Sequence[str], base: str | None) -> None:
    """Write this choice into the address."""
    wanted = compare_link.query(runs, base) if runs else {}
    for name in (compare_link.RUNS, compare_link.BASE):
        if name in wanted:
            st.query_params[name] = wanted[name]
        elif name in st.query_params:
            del st.query_params[name]
