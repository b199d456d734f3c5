"""One click from a run to its counterpart: found among this session's runs, or run first, and then compared."""

from __future__ import annotations

from html import escape

import streamlit as st

from core.errors import SpecLensError
from core.grammar import format_shape
from core.results.counterparts import Counterpart, counterparts
from core.types import RunSpec
from pages.ui.kit import parts
from pages.ui.kit.compare_link import query
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services
from pages.ui.kit.sides import MOST

PAGE = "pages/compare.py"


def section(services: Services, run: Shown, chosen: tuple[str, ...] = ()) -> None:
    """Draws each counterpart with its reason and its button. ``chosen``: runs compared already; what is among them is
    left out, and a click adds to them."""
    if run.active or run.summary is None:
        return
    found = [(other, _at_hand(services, run, other)) for other in counterparts(run.spec.request)]
    found = [(other, there) for other, there in found if there not in chosen]
    if not found:
        return
    st.html('<h3 class="sl-h">Compare with</h3>')
    with st.container(key=f"counterparts_{run.run_id}"):
        for other, there in found:
            _line(services, run, other, there, chosen)


def _line(services: Services, run: Shown, other: Counterpart, there: str | None, chosen: tuple[str, ...]) -> None:
    with parts.headline(f"counterpart_{other.kind}"):
        st.html(f'<p class="sl-reason">{escape(other.reason)} <small>{_state(services, run, there)}</small></p>')
        if st.button(label(other), icon=":material/compare_arrows:", key=f"compare_{other.kind}"):
            try:
                ids = start(services, run, other)
            except SpecLensError as error:
                st.html(parts.note("bad", str(error)))
                return
            together = list(dict.fromkeys([*chosen, *ids]))[-MOST:]
            st.switch_page(PAGE, query_params=query(together, _base(ids, other)))


def label(other: Counterpart) -> str:
    """The button's words."""
    match other.kind:
        case "plain":
            return "Plain"
        case "lossless":
            return "Lossless"
        case _:
            return format_shape(other.request.shape)


def start(services: Services, run: Shown, other: Counterpart) -> tuple[str, str]:
    """The ids of ``run`` and its counterpart, which is submitted when this session has none.

    A run of an earlier session whose counterpart was not measured then is run again beside it: seconds of two sessions
    are not compared. Raises what ``submit`` raises.
    """
    there = _at_hand(services, run, other)
    if there is not None:
        return run.run_id, there
    mine = run.run_id
    if run.session != services.session:
        mine = _find(services, run.spec, services.session) or services.jobs.submit(run.spec)
    spec = RunSpec(pair=run.spec.pair, request=other.request)
    return mine, _find(services, spec, services.session) or services.jobs.submit(spec)


def _base(ids: tuple[str, str], other: Counterpart) -> str:
    """Plain, lossless and chain runs are what the other is measured against; a tree is measured against its chain."""
    run, counterpart = ids
    return run if other.kind == "tree" else counterpart


def _at_hand(services: Services, run: Shown, other: Counterpart) -> str | None:
    """The counterpart of the run's own session, done or on its way."""
    return _find(services, RunSpec(pair=run.spec.pair, request=other.request), run.session)


def _find(services: Services, spec: RunSpec, session: str) -> str | None:
    stored = services.runs.of_spec(spec, session) if services.runs else None
    if stored is not None:
        return stored.run_id
    if session != services.session:
        return None
    return next((view.run_id for view in services.jobs.active() if view.spec == spec), None)


def _state(services: Services, run: Shown, there: str | None) -> str:
    if there is not None:
        active = {view.run_id for view in services.jobs.active()}
        return "On its way." if there in active else "Measured already."
    if run.session != services.session:
        return "Both are run again: seconds of two sessions are not compared."
    return "It is run first."
