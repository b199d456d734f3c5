"""The Live form: fields with the limits of ``core.types``, read as a validated run or a sentence on what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import streamlit as st

from core.errors import BadInput
from core.grammar import ALLOWED_HELP
from core.pairs.presets import PairStatus
from core.types import (
    Precision,
    RunSpec,
    Sampling,
    Stops,
)
from pages.ui.kit import parts
from pages.ui.kit.fields import key, number, pair_of, whole
from pages.ui.live import candidate_form, race_form
from pages.ui.live import form_values as fv
from pages.ui.live.examples import EXAMPLES, Example

KEY = "live_"


def fill(values: dict[str, Any], over: bool = False) -> None:
    """Set all fields (``over``), or only those without a value."""
    for name, value in (fv.DEFAULTS | values).items():
        if over or KEY + name not in st.session_state:
            st.session_state[KEY + name] = value


def prompt_part(pairs: Sequence[PairStatus]) -> None:
    """Draw pair and prompt."""
    known = {pair.name: pair for pair in pairs}
    chosen = st.session_state[KEY + "pair"]
    names = list(known) + ([chosen] if chosen and chosen not in known else [])
    name = st.selectbox(
        "Pair",
        names,
        format_func=lambda name: name if name not in known or known[name].available else f"{name} · not downloaded",
        accept_new_options=True,
        help="Target and draft. Type TARGET or TARGET+DRAFT for hub names or local folders.",
        **key(KEY, "pair"),
    )
    if name in known:
        pair = known[name]
        if pair.missing:
            st.html(parts.note("warn", pair.missing))
        else:
            about = (pair.target, pair.draft, pair.note)
            st.caption(" · ".join(part for part in about if part).replace("[", r"\["))
    st.text_area("Prompt", height=190, **key(KEY, "prompt"))
    with parts.headline("under_prompt"):
        st.toggle(
            "Chat template", help="Wrap the prompt as one user turn, as the model was trained.", **key(KEY, "chat")
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
    """Draw everything below the prompt: drafter, shape, rule, sampling, limits."""
    asked = read()
    candidate_form.part(KEY, asked)
    race_form.part(asked)
    _sampling()
    _limits()


def read_all() -> list[RunSpec] | str:
    """The runs that the fields request, two for a race, or a sentence on why there are none."""
    first = read()
    if isinstance(first, str):
        return first
    second = race_form.read(first)
    if isinstance(second, str):
        return second
    return [first] if second is None else [first, second]


def read() -> RunSpec | str:
    """The run that the fields request, or a sentence on why there is none."""
    try:
        return fv.spec_of({name: st.session_state.get(KEY + name) for name in fv.DEFAULTS})
    except BadInput as error:
        return str(error)


def _sampling() -> None:
    number("Temperature", Sampling, "temperature", 0.1, KEY, help="0 is greedy.")
    with st.expander("More sampling"):
        pair_of(
            lambda: whole("Top-k", Sampling, "top_k", KEY, help="0 is off."),
            lambda: number("Top-p", Sampling, "top_p", 0.05, KEY, help="1 is off."),
        )
        pair_of(
            lambda: number("Min-p", Sampling, "min_p", 0.05, KEY, help="0 is off."),
            lambda: number("Repetition penalty", Sampling, "repetition_penalty", 0.05, KEY, help="1 is off."),
        )
        pair_of(
            lambda: number("η", Sampling, "eta", 0.01, KEY, help="η-sampling; 0 is off."),
            lambda: number("ε", Sampling, "epsilon", 0.01, KEY, help="ε-sampling; 0 is off."),
        )
        whole("Min new tokens", Sampling, "min_new_tokens", KEY)
        st.toggle(
            "Truncate the draft as well",
            help="Also apply min-p, η, ε and the extra truncation to the draft.",
            **key(KEY, "truncate_draft"),
        )
        st.text_input(
            "Extra truncation",
            help=f"Applied to the target after the settings above: {ALLOWED_HELP}.",
            **key(KEY, "allowed"),
        )


def _limits() -> None:
    pair_of(
        lambda: whole("Max new tokens", Stops, "max_new_tokens", KEY),
        # a text field, since the browser's number field ends at 2**53
        lambda: st.text_input("Seed", help="A whole number; the same seed gives the same tokens.", **key(KEY, "seed")),
    )
    with st.expander("Stops, precision, measuring"):
        st.text_area(
            "Stop strings",
            height=80,
            help=r"One a line; `\n` and `\t` stand for line break and tab.",
            **key(KEY, "stop_strings"),
        )
        pair_of(
            lambda: st.selectbox(
                "Precision",
                get_args(Precision),
                help="auto is bfloat16 on a GPU and float32 on the CPU. int8 (CPU): linear layers rounded to int8, "
                "another target with a baseline of its own.",
                **key(KEY, "precision"),
            ),
            lambda: st.selectbox("Device", ["auto", "cpu", "cuda"], **key(KEY, "device")),
        )
        st.toggle(
            "Measure distortion",
            help="At every tested position, what the rule emits against the law it is judged by. Costs a little time, "
            "which is shown.",
            **key(KEY, "measure_distortion"),
        )


def _take(example: Example) -> None:
    taken = {"prompt": example.prompt, "chat": example.chat, "max_new_tokens": example.max_new_tokens}
    for name, value in taken.items():
        st.session_state[KEY + name] = value
