"""The fields of the chosen rule on the Live form, as the catalogue of rules describes them."""

from __future__ import annotations

import streamlit as st

from core.rules.catalogue import BY_NAME, KINDS, REDRAWS, Parameter, RuleEntry
from pages.ui.kit import fields


def part(prefix: str) -> RuleEntry:
    """The rule and its fields, under keys that begin with ``prefix``; the rule that is chosen."""
    chosen = st.selectbox("Rule", KINDS, format_func=lambda name: BY_NAME[name].label, **fields.key(prefix, "rule"))
    entry = BY_NAME[chosen]
    st.caption(entry.about)
    numeric = [one for one in entry.parameters if one.numeric]
    for left, right in zip(numeric[::2], numeric[1::2], strict=False):
        fields.pair_of(lambda one=left: _number(prefix, entry, one), lambda one=right: _number(prefix, entry, one))
    if len(numeric) % 2:
        _number(prefix, entry, numeric[-1])
    for one in entry.parameters:
        if isinstance(one.default, bool):
            st.toggle(one.label, help=one.help, **fields.key(prefix, one.name))
        elif not one.numeric:
            st.selectbox(
                one.label, list(REDRAWS), format_func=REDRAWS.__getitem__, help=one.help, **fields.key(prefix, one.name)
            )
    return entry


def _number(prefix: str, entry: RuleEntry, one: Parameter) -> None:
    if entry.whole(one.field):
        fields.whole(one.label, entry.spec, one.field, prefix, help=one.help, name=one.name)
        return
    low = 0.0 if entry.optional(one.field) else None
    fields.number(one.label, entry.spec, one.field, one.step, prefix, help=one.help, name=one.name, low=low)
