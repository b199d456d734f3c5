"""The Live form: fields built from the limits of ``core.types``, giving a validated run or a sentence why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from core import degenerate
from core.errors import BadInput
from core.grammar import ALLOWED_HELP
from core.presets import PairStatus
from core.types import (
    ChainShape,
    EarlyExitDrafter,
    PromptLookupDrafter,
    RunSpec,
    Sampling,
    Stops,
    TreeShape,
)
from pages.ui import fields, parts, trees
from pages.ui import form_values as fv
from pages.ui.examples import EXAMPLES, Example
from pages.ui.rule_form import rule_part

KEY = fields.KEY
EARLY_EXIT = (
    "An exit that was not trained shows the mechanism, not a speed-up: the first layers seldom agree with the "
    "whole model. LayerSkip-trained models are made for it."
)
LOSSY = (
    "This rule changes the law of the output: it accepts more, and the text is no longer distributed as the target's."
)


def fill(values: dict[str, Any], over: bool = False) -> None:
    """Set the fields, all of them (``over``) or only those that have no value yet."""
    for name, value in (fv.DEFAULTS | values).items():
        if over or KEY + name not in st.session_state:
            st.session_state[KEY + name] = value


def prompt_part(pairs: Sequence[PairStatus]) -> None:
    """Pair and prompt."""
    known = {pair.name: pair for pair in pairs}
    chosen = st.session_state[KEY + "pair"]
    names = list(known) + ([chosen] if chosen and chosen not in known else [])
    name = st.selectbox(
        "Pair",
        names,
        format_func=lambda name: name if name not in known or known[name].available else f"{name} · not here",
        accept_new_options=True,
        help="Target and draft. Type TARGET or TARGET+DRAFT for hub names or local folders.",
        **fields.key("pair"),
    )
    if name in known:
        pair = known[name]
        if pair.missing:
            st.html(parts.note("warn", pair.missing))
        else:
            about = (pair.target, pair.draft, pair.note)
            st.caption(" · ".join(part for part in about if part).replace("[", r"\["))
    st.text_area("Prompt", height=190, **fields.key("prompt"))
    with parts.headline("under_prompt"):
        st.toggle(
            "Chat template", help="Wrap the prompt as one user turn, as the model was trained.", **fields.key("chat")
        )
        with st.popover("Examples", type="tertiary"):
            for example in EXAMPLES:
                st.button(
                    example.name,
                    help=example.note,
                    width="stretch",
                    on_click=_take,
                    args=(example,),
                    key=f"example_{example.name}",
                )


def settings_part() -> None:
    """Everything below the prompt: drafter, shape, rule, sampling, limits."""
    drafter = st.selectbox("Drafter", list(fv.DRAFTERS), format_func=fv.DRAFTERS.__getitem__, **fields.key("drafter"))
    if drafter == "prompt_lookup":
        fields.pair_of(
            lambda: fields.whole("Shortest n-gram", PromptLookupDrafter, "min_ngram"),
            lambda: fields.whole("Longest n-gram", PromptLookupDrafter, "max_ngram"),
        )
    elif drafter == "early_exit":
        fields.whole(
            "Exit after layer", EarlyExitDrafter, "layers", help="The target's first layers draft; the rest verify."
        )
        st.html(parts.note("warn", EARLY_EXIT))
    if drafter != "none":
        _shape()
        _rule()
    _sampling()
    _limits()


def notices() -> list[str]:
    """What the chosen rule becomes with this drafter, shape and sampling, where that is not what its name says."""
    asked = read()
    return [] if isinstance(asked, str) else degenerate.notices(asked.request)


def read() -> RunSpec | str:
    """The run that the fields ask for, or the sentence that says why they can't."""
    try:
        return fv.spec_of({name: st.session_state.get(KEY + name) for name in fv.DEFAULTS})
    except BadInput as error:
        return str(error)


def _shape() -> None:
    shape = fields.choice("Shape", fv.SHAPES, "shape")
    if shape == "tree":
        with st.container(key="tree_fields"):
            one, two, three = st.columns(3, gap="small", wrap=False)
        with one:
            fields.whole("Steps", TreeShape, "steps")
        with two:
            fields.whole("Top-k", TreeShape, "topk", help="Beams expanded in each step.")
        with three:
            fields.whole("Nodes", TreeShape, "nodes", help="The root included.")
    else:
        fields.whole("Candidates γ", ChainShape, "gamma")
    try:
        made = fv.shape_of({name: st.session_state.get(KEY + name) for name in fv.DEFAULTS})
    except BadInput:
        return  # the sentence stands beside the Run button
    st.html(trees.preview(made))
    st.caption(trees.summary(made))


def _rule() -> None:
    if rule_part() not in ("lossless", "block"):
        st.html(parts.note("warn", LOSSY))
    for sentence in notices():
        st.html(parts.note("info", sentence))


def _sampling() -> None:
    fields.number("Temperature", Sampling, "temperature", 0.1, help="0 is greedy.")
    with st.expander("More sampling"):
        fields.pair_of(
            lambda: fields.whole("Top-k", Sampling, "top_k", help="0 is off."),
            lambda: fields.number("Top-p", Sampling, "top_p", 0.05, help="1 is off."),
        )
        fields.pair_of(
            lambda: fields.number("Min-p", Sampling, "min_p", 0.05, help="0 is off."),
            lambda: fields.number("Repetition penalty", Sampling, "repetition_penalty", 0.05, help="1 is off."),
        )
        fields.pair_of(
            lambda: fields.number("η", Sampling, "eta", 0.01, help="η-sampling; 0 is off."),
            lambda: fields.number("ε", Sampling, "epsilon", 0.01, help="ε-sampling; 0 is off."),
        )
        fields.whole("Fewest new tokens", Sampling, "min_new_tokens")
        st.toggle(
            "Truncate the draft as well",
            help="Min-p, η, ε and further sets shape the target alone unless this is on.",
            **fields.key("truncate_draft"),
        )
        st.text_input(
            "Further allowed sets", help=f"Of the target, after all others: {ALLOWED_HELP}.", **fields.key("allowed")
        )


def _limits() -> None:
    fields.pair_of(
        lambda: fields.whole("Most new tokens", Stops, "max_new_tokens"),
        # text, since a number field of the browser ends at 2**53
        lambda: st.text_input(
            "Seed", help="A whole number; the same seed gives the same tokens.", **fields.key("seed")
        ),
    )
    with st.expander("Stops, precision, measuring"):
        st.text_area(
            "Stop strings",
            height=80,
            help=r"One a line; `\n` and `\t` stand for line break and tab.",
            **fields.key("stop_strings"),
        )
        fields.pair_of(
            lambda: st.selectbox("Precision", ["auto", "float32", "bfloat16", "float16"], **fields.key("precision")),
            lambda: st.selectbox("Device", ["auto", "cpu", "cuda"], **fields.key("device")),
        )
        st.toggle(
            "Measure distortion",
            help="At every tested position, what the rule emits against the law it is judged by. Costs a little time, "
            "which is shown.",
            **fields.key("measure_distortion"),
        )


def _take(example: Example) -> None:
    taken = {"prompt": example.prompt, "chat": example.chat, "max_new_tokens": example.max_new_tokens}
    for name, value in taken.items():
        st.session_state[KEY + name] = value
