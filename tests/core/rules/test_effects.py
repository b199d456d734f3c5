"""Settings that can't act are told before the run."""

from __future__ import annotations

import pytest

from core.rules.effects import control_stops, notices
from core.types import AllowedSet
from tests.helpers.decoding import ask


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ask(top_k=20), "At temperature 0 top_k=20 changes nothing: the most probable token is taken."),
        (ask(top_p=0.9, min_p=0.1), "At temperature 0 top_p=0.9 and min_p=0.1 change nothing"),
        (ask(allowed=(AllowedSet(min_p=0.5),)), "At temperature 0 allowed="),
        (ask(seed=3), "At temperature 0 nothing is drawn: the seed 3 changes nothing."),
        (ask(temperature=1.0, truncate_draft=True), "truncate_draft changes nothing without min_p"),
        (ask(temperature=1.0, truncate_draft=True, min_p=0.1), "no candidate is drawn from the draft here"),
        (
            ask(drafter="prompt_lookup", shape="chain:2", temperature=1.0, truncate_draft=True, min_p=0.1),
            "no candidate is drawn from the draft here",
        ),
        (ask(min_new_tokens=30, max_new_tokens=20), "min_new_tokens 30 is more than max_new_tokens 20"),
        (
            ask(drafter="model", shape="chain:2", rule="lenience:0.5"),
            "At temperature 0 lenience:0.5 changes nothing",
        ),
    ],
)
def test_a_setting_that_can_do_nothing_is_told(request_, said):
    (sentence,) = notices(request_)
    assert said in sentence


@pytest.mark.parametrize(
    "request_",
    [
        ask(),
        ask(repetition_penalty=1.2, min_new_tokens=4),
        ask(temperature=0.7, top_k=20, top_p=0.9, seed=3),
        ask(drafter="model", shape="chain:2", temperature=0.7, truncate_draft=True, min_p=0.1),
    ],
)
def test_settings_that_act_are_not_mentioned(request_):
    assert notices(request_) == []


def test_a_stop_string_of_a_control_token_is_told():
    (sentence,) = control_stops(ask(stop=["\n", "a<|im_end|>"]), ["<|im_start|>", "<|im_end|>"])
    assert sentence.startswith("The stop string 'a<|im_end|>' holds the name of the control token '<|im_end|>'")
