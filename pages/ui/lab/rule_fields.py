"""The rules' parameters as fields that all tabs of the rule lab share, and the choice of one rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.rules.catalogue import BY_NAME, LAB_RULES, REDRAWS, Parameter, RuleEntry, limits

KEY = "lab_v_"
DEFAULTS: dict[str, Any] = {name: value for entry in LAB_RULES for name, value in entry.defaults.items()}


def current() -> dict[str, Any]:
    """The value of every parameter."""
    return {name: st.session_state.get(KEY + name, default) for name, default in DEFAULTS.items()}


def all_fields() -> dict[str, Any]:
    """A field for each parameter of every rule; the value of every parameter."""
    with st.container(horizontal=True, key="lab_fields"):
        _fields(LAB_RULES)
    return current()


def fields_of(rule: RuleEntry) -> dict[str, Any]:
    """The fields of one rule; the value of every parameter."""
    if rule.parameters:
        with st.container(horizontal=True, key="lab_fields", width="content"):
            _fields((rule,))
    return current()


def figure_fields(figure: str, defaults: Mapping[str, Any], rules: Sequence[str]) -> dict[str, Any]:
    """Fields for the parameters in ``defaults`` of these rules, for one figure alone; their values."""
    with st.container(horizontal=True, key=f"lab_{figure}_fields"):
        _fields([BY_NAME[name] for name in rules], f"lab_{figure}_", defaults)
    return {name: st.session_state.get(f"lab_{figure}_{name}", value) for name, value in defaults.items()}


def _fields(rules: Sequence[RuleEntry], prefix: str = KEY, defaults: Mapping[str, Any] = DEFAULTS) -> None:
    """One field for each parameter name in ``defaults`` that one of ``rules`` has."""
    first = {one.name: (rule, one) for rule in reversed(rules) for one in reversed(rule.parameters)}
    for name in dict.fromkeys(one.name for rule in rules for one in rule.parameters):
        if name in defaults:
            _field(*first[name], prefix + name, defaults[name])


def _field(rule: RuleEntry, one: Parameter, key: str, default: Any) -> None:
    if isinstance(default, bool):
        st.toggle(one.label, value=default, help=one.help, key=key, persist_state="session")
        return
    if not one.numeric:
        options = list(REDRAWS)
        st.selectbox(
            one.label, options, index=options.index(default), format_func=REDRAWS.__getitem__, help=one.help,
            width=230, key=key, persist_state="session",
        )  # fmt: skip
        return
    low, high = one.swept or limits(rule.spec, one.field)
    kind = int if rule.whole(one.field) else float
    st.number_input(
        one.label,
        min_value=kind(0.0 if rule.optional(one.field) else low),
        max_value=kind(high),
        value=kind(default),
        step=kind(one.step),
        format="%d" if kind is int else "%.2f",
        help=one.help,
        width=150,
        key=key,
        persist_state="session",
    )


def choose(key: str, also: Sequence[RuleEntry] = ()) -> RuleEntry:
    """One rule of the lab or of ``also``; the choice is kept in the link as ``rule``."""
    rules = (*LAB_RULES, *also)
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
