"""The embedded model decodes speculatively as it does plainly; a drafter that is the target is never rejected."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.helpers.decoding import ask, decode, decode_all

PROMPTS = [
    "Repeat this line: the cat sat on the mat and the dog sat on the cat.",
    "Count from one to ten.",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):",
    "List three colours.",
]
TOKENS = 8


@pytest.fixture(scope="module")
def plain(embedded_pair):
    """Greedy plain tokens of every prompt, decoded alone."""
    return [decode(ask(prompt, max_new_tokens=TOKENS), embedded_pair).tokens for prompt in PROMPTS]


@pytest.mark.parametrize("shape", ["chain:1", "chain:4", "chain:8", "s3_k2_d6"])
def test_greedy_prompt_lookup_equals_plain_alone_and_in_a_ragged_batch(embedded_pair, plain, shape):
    alone = decode(ask(PROMPTS[0], "prompt_lookup", shape, max_new_tokens=TOKENS), embedded_pair)
    assert alone.tokens == plain[0]
    requests = [ask(prompt, "prompt_lookup", shape, max_new_tokens=TOKENS) for prompt in PROMPTS]
    assert [one.tokens for one in decode_all(requests, embedded_pair)] == plain


@pytest.mark.parametrize("shape", ["chain:3", "s3_k2_d6"])
def test_greedy_early_exit_equals_plain_alone_and_in_a_ragged_batch(embedded_pair, plain, shape):
    alone = decode(ask(PROMPTS[1], "early_exit:27", shape, max_new_tokens=TOKENS), embedded_pair)
    assert alone.tokens == plain[1]
    assert alone.started.recomputed_share == 0.0
    requests = [ask(prompt, "early_exit:27", shape, max_new_tokens=TOKENS) for prompt in PROMPTS]
    assert [one.tokens for one in decode_all(requests, embedded_pair)] == plain


@pytest.fixture(scope="module")
def self_drafting(embedded_pair) -> Any:
    """The embedded model as its own draft."""
    return dataclasses.replace(embedded_pair, draft=embedded_pair.target)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_model_drafting_for_itself_is_accepted_in_every_round(self_drafting, temperature):
    request = ask(PROMPTS[1], "model", "chain:1", temperature=temperature, max_new_tokens=32, min_new_tokens=32)
    run = decode(request, self_drafting)
    assert len(run.rounds) == 16
    assert run.summary.draft_acceptance_rate == 1.0


def test_an_exit_after_all_layers_accepts_everything(embedded_pair):
    run = decode(ask(PROMPTS[2], "early_exit:30", "chain:3", temperature=0.7, max_new_tokens=12), embedded_pair)
    assert run.summary.draft_acceptance_rate == 1.0


def test_prompt_lookup_commits_several_tokens_a_round_when_the_answer_repeats_the_prompt(embedded_pair):
    line = "The quick brown fox jumps over the lazy dog while the small cat sleeps near the warm stove."
    prompt = f"Copy the text exactly.\n\nText: {line}\n\nCopy: The quick brown fox"
    run = decode(ask(prompt, "prompt_lookup:2,4", "chain:6", max_new_tokens=16), embedded_pair)
    assert (run.summary.tokens_per_round or 0) > 3.0
    assert run.tokens == decode(ask(prompt, max_new_tokens=16), embedded_pair).tokens
