"""The form's values: what goes in comes out, and what can't be used is a sentence."""

from __future__ import annotations

import pytest

from core.errors import BadInput
from core.grammar import parse_allowed, parse_drafter, parse_rule, parse_shape
from core.types import PairSpec, Request, RunSpec, Sampling, Stops
from pages.ui.kit.fields import bounds
from pages.ui.lab import rule_fields
from pages.ui.live.examples import EXAMPLES
from pages.ui.live.form_values import DEFAULTS, show_stop, spec_of, stop_strings, values_of


def made(drafter: str, shape: str, rule: str) -> RunSpec:
    """A run with everything off its default."""
    return RunSpec(
        pair=PairSpec(name="a+b", precision="bfloat16", device="cpu"),
        request=Request(
            prompt="Prompt \n with lines",
            chat=False,
            sampling=Sampling(
                temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, eta=0.01, epsilon=0.02, repetition_penalty=1.1,
                min_new_tokens=3, truncate_draft=True, allowed=parse_allowed("top_k=9;eta=0.1,delta=0.2"),
            ),
            stops=Stops(max_new_tokens=7, stop_strings=("\n\n", "a\\nb", "\tEND ")),
            drafter=parse_drafter(drafter),
            shape=parse_shape(shape),
            rule=parse_rule(rule),
            seed=2**62,
            measure_distortion=False,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("drafter", "shape", "rule"),
    [
        ("none", "none", "lossless"),
        ("model", "chain:3", "lenience:0.4"),
        ("prompt_lookup:2,5", "chain:8", "lossless"),
        ("early_exit:20", "s4_k3_d9", "spec_cascade:0.3,redraw=draft_in_set,recompute=true"),
        ("model", "chain:3", "block"),
        ("model", "chain:3", "cos_we:0.25"),
        ("model", "chain:3", "cos_cd:0.75"),
        ("model", "chain:3", "typical:0.2,delta=0.1,redraw=target,hard=false,recompute=true"),
        ("model", "chain:3", "typical:0.2"),
        ("model", "chain:3", "truncation:top_k=7,top_p=0.9,min_p=0.1,epsilon=0.01,eta=0.02,delta=0.3,redraw=target"),
        ("model", "chain:3", "truncation:top_k=7,recompute=true"),
        ("model", "chain:3", "adaptive_interpolation:0.4"),
        ("model", "chain:3", "overshoot_ceiling:0.6"),
        ("model", "chain:3", "min_p_ceiling:0.5,ell=0.4"),
    ],
)
def test_a_run_put_into_the_form_is_asked_for_again_exactly(drafter: str, shape: str, rule: str) -> None:
    spec = made(drafter, shape, rule)
    assert spec_of(values_of(spec)) == spec


def test_the_defaults_are_a_run_of_the_first_example() -> None:
    spec = spec_of(DEFAULTS)
    assert spec.request.prompt == EXAMPLES[0].prompt
    assert spec.pair.name == "embedded"


@pytest.mark.parametrize("text", ["\n", "a\\b", "\\n", "\t", "\\\\", "end\\"])
def test_a_stop_string_is_one_line_in_the_form_whatever_it_holds(text: str) -> None:
    assert "\n" not in show_stop(text)
    assert stop_strings(show_stop(text)) == (text,)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompt": " "}, "The prompt is empty: type something to decode."),
        ({"pair": ""}, "The pair is ''"),
        ({"seed": "-1"}, "Seed is '-1'"),
        ({"gamma": None}, "γ is None"),
        ({"max_new_tokens": 0}, "Max new tokens is 0"),
        ({"drafter": "prompt_lookup", "min_ngram": 4, "max_ngram": 2}, "Prompt lookup's shortest n-gram 4"),
        ({"shape": "tree", "steps": 1, "topk": 1, "nodes": 9}, "The shape s1_k1 reaches at most 1 candidates"),
        ({"rule": "lenience", "ell": 0.0}, "ℓ is 0.0"),
        ({"stop_strings": "x\n" * 17}, "A stop string"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_that_names_the_field(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        spec_of(DEFAULTS | change)
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith(".")


def test_fields_take_their_limits_from_the_specification() -> None:
    assert bounds(Sampling, "temperature") == (0.0, 100.0)
    assert bounds(Sampling, "top_p") == (None, 1.0)  # exclusive at 0: validation says so
    assert bounds(Stops, "max_new_tokens") == (1, 1_000_000)


def test_the_rule_lab_and_the_live_form_start_from_the_same_values():
    lab, live = rule_fields.DEFAULTS, DEFAULTS
    shared = lab.keys() & live.keys() - {"top_k", "top_p"}  # on Live these are the sampling's
    assert {"ell", "p_base", "redraw", "typical_epsilon"} <= shared
    assert {name: lab[name] for name in shared} == {name: live[name] for name in shared}
