"""The rules' parameters: fields that all tabs of the rule lab share, and the rules written with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.rules.catalogue import DEFAULTS, PARAMETERS, RULES, LabRule, parameters_of

KEY = "lab_v_"
REDRAWS = {
    "draft_in_set": "q inside the set (Eq. 12–13)",
    "target_in_set": "p inside the set (App. H.1)",
    "target": "p (the authors' code)",
}


def current() -> dict[str, Any]:
    """Every parameter as it stands."""
    return {key: st.session_state.get(KEY + key, default) for key, default in DEFAULTS.items()}


def fields(keys: Sequence[str], redraw: bool, hard: bool, alone: bool = True) -> dict[str, Any]:
    """Fields of these parameters; every parameter as it then stands. ``alone``: they have a line of their own."""
    with st.container(horizontal=True, key="lab_fields", width="stretch" if alone else "content"):
        for key in keys:
            parameter = PARAMETERS[key]
            whole = parameter.step == 1
            kind = int if whole else float
            st.number_input(
                parameter.label,
                min_value=kind(parameter.low),
                max_value=kind(parameter.high),
                value=kind(parameter.default),
                step=kind(parameter.step),
                format="%d" if whole else "%.2f",
                help=parameter.about,
                width=150,
                key=KEY + key,
                persist_state="session",
            )
        if redraw:
            st.selectbox(
                "Redraw of truncation rules",
                list(REDRAWS),
                format_func=REDRAWS.__getitem__,
                help="What a rejected position is drawn from. Paper and code disagree, so it is a choice.",
                width=230,
                key=KEY + "redraw",
                persist_state="session",
            )
        if hard:
            st.selectbox(
                "Typical test",
                [True, False],
                format_func={True: "in the set or not (Eq. 28)", False: "min(1, p/τ) (the code)"}.__getitem__,
                help="Eq. 28 writes both as if they were equal.",
                width=210,
                key=KEY + "hard",
                persist_state="session",
            )
    return current()


def all_fields() -> dict[str, Any]:
    """Fields of every rule."""
    return fields(list(PARAMETERS), redraw=True, hard=True)


def fields_of(rule: LabRule) -> dict[str, Any]:
    """Fields of one rule."""
    truncates = rule.family == "Truncation-based"
    if not parameters_of(rule) and not truncates:
        return current()
    return fields(parameters_of(rule), redraw=truncates, hard=rule.name == "typical", alone=False)


def choose(key: str, also: Sequence[LabRule] = ()) -> LabRule:
    """One rule of the catalogue or of ``also``; the choice stands in the link as ``rule``."""
    rules = (*RULES, *also)
    names = [rule.name for rule in rules]
    asked = st.query_params.get("rule")
    st.session_state.setdefault(key, asked if asked in names else names[1])
    labels = {rule.name: f"{rule.label} · {rule.family}" for rule in rules}
    name = st.selectbox(
        "Rule",
        names,
        format_func=labels.__getitem__,
        key=key,
        width=330,
        persist_state="session",
    )
    if st.query_params.get("rule") != name:
        st.query_params["rule"] = name
    return next(rule for rule in rules if rule.name == name)
