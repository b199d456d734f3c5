"""Form fields of drafter, shape (with its preview) and rule. A race has two sets of them."""

from __future__ import annotations

import streamlit as st

from core.errors import BadInput
from core.rules import degenerate, effects
from core.rules.catalogue import BY_NAME, KINDS, REDRAWS, Parameter, RuleEntry
from core.types import ChainShape, EarlyExitDrafter, PromptLookupDrafter, RunSpec, TreeShape
from pages.ui.kit import fields, notices, parts
from pages.ui.kit.fields import choice, key, pair_of, whole
from pages.ui.live import form_values as fv
from pages.ui.rounds import trees


def part(prefix: str, asked: RunSpec | str | None) -> None:
    """Draw the fields, whose keys begin with ``prefix``; ``asked``: the run that they request now, or why none."""
    drafter = st.selectbox("Drafter", list(fv.DRAFTERS), format_func=fv.DRAFTERS.__getitem__, **key(prefix, "drafter"))
    if drafter == "prompt_lookup":
        pair_of(
            lambda: whole("Shortest n-gram", PromptLookupDrafter, "min_ngram", prefix),
            lambda: whole("Longest n-gram", PromptLookupDrafter, "max_ngram", prefix),
        )
    elif drafter == "early_exit":
        whole(
            "Exit after layer",
            EarlyExitDrafter,
            "layers",
            prefix,
            help="The target's first layers draft; the rest verify.",
        )
        st.html(parts.note("warn", notices.EARLY_EXIT))
    if drafter != "none":
        _shape(prefix)
        _rule(prefix, asked)


def _shape(prefix: str) -> None:
    shape = choice("Shape", fv.SHAPES, prefix, "shape")
    if shape == "tree":
        with st.container(key=f"tree_fields_{prefix}"):
            one, two, three = st.columns(3, gap="small", wrap=False)
        with one:
            whole("Steps", TreeShape, "steps", prefix)
        with two:
            whole("Top-k", TreeShape, "topk", prefix, help="Beams expanded in each step.")
        with three:
            whole("Nodes", TreeShape, "nodes", prefix, help="The root included.")
    else:
        whole("Candidates γ", ChainShape, "gamma", prefix)
    try:
        made = fv.shape_of({name: st.session_state.get(prefix + name) for name in fv.DEFAULTS})
    except BadInput:
        return  # the sentence is shown beside the Run button
    st.html(trees.preview(made))
    st.caption(trees.summary(made))


def _rule(prefix: str, asked: RunSpec | str | None) -> None:
    entry = _rule_fields(prefix)
    lossy = degenerate.changes_output(asked.request) if isinstance(asked, RunSpec) else not entry.lossless
    if lossy:
        st.html(parts.note("warn", notices.LOSSY))
    for sentence in effects.notices(asked.request) if isinstance(asked, RunSpec) else ():
        st.html(parts.note("info", sentence))


def _rule_fields(prefix: str) -> RuleEntry:
    """Draw the rule and its fields, whose keys begin with ``prefix``; return the chosen rule."""
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
