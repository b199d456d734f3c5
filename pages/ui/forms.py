"""The Live form: fields built from the limits of ``core.types``, giving a validated run or a sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from core.errors import BadInput
from core.presets import PairStatus
from core.types import (
    ChainShape,
    EarlyExitDrafter,
    Lenience,
    PromptLookupDrafter,
    RunSpec,
    Sampling,
    Spec,
    SpecCascade,
    Stops,
    TreeShape,
)
from pages.ui import form_values as fv
from pages.ui import parts, trees
from pages.ui.examples import EXAMPLES, Example

KEY = "live_"
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
        **_key("pair"),
    )
    if name in known:
        pair = known[name]
        if pair.missing:
            st.html(parts.note("warn", pair.missing))
        else:
            about = (pair.target, pair.draft, pair.note)
            st.caption(" · ".join(part for part in about if part).replace("[", r"\["))
    st.text_area("Prompt", height=190, **_key("prompt"))
    with parts.headline("under_prompt"):
        st.toggle("Chat template", help="Wrap the prompt as one user turn, as the model was trained.", **_key("chat"))
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
    drafter = st.selectbox("Drafter", list(fv.DRAFTERS), format_func=fv.DRAFTERS.__getitem__, **_key("drafter"))
    if drafter == "prompt_lookup":
        _pair_of(
            lambda: _whole("Shortest n-gram", PromptLookupDrafter, "min_ngram"),
            lambda: _whole("Longest n-gram", PromptLookupDrafter, "max_ngram"),
        )
    elif drafter == "early_exit":
        _whole("Exit after layer", EarlyExitDrafter, "layers", help="The target's first layers draft; the rest verify.")
        st.html(parts.note("warn", EARLY_EXIT))
    if drafter != "none":
        _shape()
        _rule()
    _sampling()
    _limits()


def read() -> RunSpec | str:
    """The run that the fields ask for, or the sentence that says why they can't."""
    try:
        return fv.spec_of({name: st.session_state.get(KEY + name) for name in fv.DEFAULTS})
    except BadInput as error:
        return str(error)


def _shape() -> None:
    shape = _choice("Shape", fv.SHAPES, "shape")
    if shape == "tree":
        with st.container(key="tree_fields"):
            one, two, three = st.columns(3, gap="small", wrap=False)
        with one:
            _whole("Steps", TreeShape, "steps")
        with two:
            _whole("Top-k", TreeShape, "topk", help="Beams expanded in each step.")
        with three:
            _whole("Nodes", TreeShape, "nodes", help="The root included.")
    else:
        _whole("Candidates γ", ChainShape, "gamma")
    try:
        made = fv.shape_of({name: st.session_state.get(KEY + name) for name in fv.DEFAULTS})
    except BadInput:
        return  # the sentence stands beside the Run button
    st.html(trees.preview(made))
    st.caption(trees.summary(made))


def _rule() -> None:
    rule = _choice("Rule", fv.RULES, "rule")
    if rule == "lenience":
        _number("Lenience ℓ", Lenience, "ell", 0.05, help="Accept min(1, p/(ℓq)); 1 is lossless.")
    elif rule == "spec_cascade":
        _number("Base p", SpecCascade, "p_base", 0.05, help="A candidate passes when p ≥ base · max p.")
        st.selectbox(
            "Redraw from",
            list(fv.REDRAWS),
            format_func=fv.REDRAWS.__getitem__,
            help="What a rejected position is drawn from. Paper and code disagree, so it is a choice.",
            **_key("redraw"),
        )
        st.toggle("Recompute the set after a rejection", **_key("recompute"))
    if rule != "lossless":
        st.html(parts.note("warn", LOSSY))


def _sampling() -> None:
    _number("Temperature", Sampling, "temperature", 0.1, help="0 is greedy.")
    with st.expander("More sampling"):
        _pair_of(
            lambda: _whole("Top-k", Sampling, "top_k", help="0 is off."),
            lambda: _number("Top-p", Sampling, "top_p", 0.05, help="1 is off."),
        )
        _pair_of(
            lambda: _number("Min-p", Sampling, "min_p", 0.05, help="0 is off."),
            lambda: _number("Repetition penalty", Sampling, "repetition_penalty", 0.05, help="1 is off."),
        )
        _pair_of(
            lambda: _number("η", Sampling, "eta", 0.01, help="η-sampling; 0 is off."),
            lambda: _number("ε", Sampling, "epsilon", 0.01, help="ε-sampling; 0 is off."),
        )
        _whole("Fewest new tokens", Sampling, "min_new_tokens")
        st.toggle(
            "Truncate the draft as well",
            help="Min-p, η and ε shape the target alone unless this is on.",
            **_key("truncate_draft"),
        )


def _limits() -> None:
    _pair_of(
        lambda: _whole("Most new tokens", Stops, "max_new_tokens"),
        # text, since a number field of the browser ends at 2**53
        lambda: st.text_input("Seed", help="A whole number; the same seed gives the same tokens.", **_key("seed")),
    )
    with st.expander("Stops and precision"):
        st.text_area(
            "Stop strings",
            height=80,
            help=r"One a line; `\n` and `\t` stand for line break and tab.",
            **_key("stop_strings"),
        )
        _pair_of(
            lambda: st.selectbox("Precision", ["auto", "float32", "bfloat16", "float16"], **_key("precision")),
            lambda: st.selectbox("Device", ["auto", "cpu", "cuda"], **_key("device")),
        )


def _take(example: Example) -> None:
    taken = {"prompt": example.prompt, "chat": example.chat, "max_new_tokens": example.max_new_tokens}
    for name, value in taken.items():
        st.session_state[KEY + name] = value


def _key(name: str) -> dict[str, Any]:
    return {"key": KEY + name, "persist_state": "session"}


def _choice(label: str, options: dict[str, str], name: str) -> str | None:
    return st.segmented_control(label, list(options), format_func=options.__getitem__, required=True, **_key(name))


def _pair_of(left: Callable[[], Any], right: Callable[[], Any]) -> None:
    """Two narrow fields side by side."""
    one, two = st.columns(2, gap="small", wrap=False)
    with one:
        left()
    with two:
        right()


def _whole(label: str, spec: type[Spec], field: str, help: str | None = None) -> None:
    low, high = fv.bounds(spec, field)
    st.number_input(label, min_value=_int(low), max_value=_int(high), step=1, help=help, **_key(field))


def _number(label: str, spec: type[Spec], field: str, step: float, help: str | None = None) -> None:
    low, high = fv.bounds(spec, field)
    st.number_input(label, min_value=low, max_value=high, step=step, format="%g", help=help, **_key(field))


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
