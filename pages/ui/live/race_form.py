"""The second configuration of a race: its drafter, shape and rule. All else is as in the first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import streamlit as st

from core.errors import BadInput
from core.results.counterparts import Counterpart, counterparts
from core.results.matching import reference_sampling
from core.rules import catalogue
from core.types import Request, RunSpec
from pages.ui.kit.fields import key
from pages.ui.live import candidate_form
from pages.ui.live import form_values as fv
from pages.ui.rounds.counterparts import label

KEY = "race_"
ON = "race_on"
SAME_LAW = "same_law"
REASON = "race_reason"
NAMES = (
    "drafter", "min_ngram", "max_ngram", "layers", "shape", "gamma", "steps", "topk", "nodes", *catalogue.DEFAULTS,
)  # fmt: skip
"""Fields of which the second configuration has its own."""
HELP = (
    "Both decode the same prompt with the same sampling, seed and limits. Their rounds alternate on the device, and "
    "each lane's clock counts only its own compute."
)
SAME_LAW_HELP = (
    "The first's rule keeps to an allowed set of the target's tokens. With this on, the second samples the target "
    "under that same set, which is the fair baseline."
)


def fill(first: RunSpec | None, second: RunSpec | None, over: bool) -> None:
    """Set all fields to the race shown (``over``), or those without a value to defaults."""
    values: dict[str, Any] = {name: fv.DEFAULTS[name] for name in NAMES} | {SAME_LAW: False}
    if first is not None and second is not None:
        values |= _values(first.request, second)
    for name, value in values.items():
        if (over and second is not None) or KEY + name not in st.session_state:
            st.session_state[KEY + name] = value
    if over or ON not in st.session_state:
        st.session_state[ON] = second is not None
        st.session_state.pop(REASON, None)


def part(first: RunSpec | str) -> None:
    """Draw the switch, and below it the counterparts to choose from and the fields."""
    st.toggle(
        "Race a second configuration",
        help=HELP,
        on_change=_begin,
        args=(first,),
        key=ON,
        persist_state="session",
    )
    if not st.session_state[ON]:
        return
    with st.container(border=True, key="race_form"):
        st.html('<h3 class="sl-h">Second configuration</h3>')
        if isinstance(first, RunSpec):
            _counterparts(first)
        candidate_form.part(KEY, read(first) if isinstance(first, RunSpec) else None)
        if isinstance(first, RunSpec) and reference_sampling(first.request) != first.request.sampling:
            st.toggle("Under the same allowed set", help=SAME_LAW_HELP, **key(KEY, SAME_LAW))


def read(first: RunSpec) -> RunSpec | str | None:
    """The second run, a sentence on why there is none, or None if the race is off."""
    if not st.session_state.get(ON):
        return None
    own = {name: st.session_state.get(KEY + name) for name in NAMES}
    try:
        second = fv.spec_of(fv.values_of(first) | own)
    except BadInput as error:
        return f"The second configuration can't be: {error}"
    if st.session_state.get(KEY + SAME_LAW):
        sampling = reference_sampling(first.request)
        second = second.model_copy(update={"request": second.request.model_copy(update={"sampling": sampling})})
    return second


def _counterparts(first: RunSpec) -> None:
    found = counterparts(first.request)
    if not found:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="race_counterparts"):
        st.html('<span class="sl-reason">Race its counterpart:</span>', width="content")
        for other in found:
            st.button(
                label(other),
                help=other.reason,
                on_click=_take,
                args=(first, other),
                key=f"race_{other.kind}_counterpart",
            )
    if reason := st.session_state.get(REASON):
        st.html(f'<p class="sl-reason"><small>{escape(reason)}</small></p>')


def _begin(first: RunSpec | str) -> None:
    """Fill the fields when the race is switched on, with the shape's counterpart: the most frequent choice."""
    if st.session_state[ON] and isinstance(first, RunSpec):
        for other in counterparts(first.request):
            if other.kind in {"chain", "tree"}:
                _take(first, other)


def _take(first: RunSpec, other: Counterpart) -> None:
    for name, value in _values(first.request, RunSpec(pair=first.pair, request=other.request)).items():
        st.session_state[KEY + name] = value
    st.session_state[REASON] = other.reason


def _values(first: Request, second: RunSpec) -> Mapping[str, Any]:
    """Values of the second configuration's own fields; fields that its parts lack stay as they are."""
    asked = fv.values_of(second)
    own = {name: asked[name] for name in NAMES if name in asked}
    same_law = second.request.sampling != first.sampling and second.request.sampling == reference_sampling(first)
    return own | {SAME_LAW: same_law}
