"""Rows without mass: no finite logit, in target or draft, before or after the processors, greedy or sampled."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import always, fake_pair, hashed

TABLE = hashed(4, seed=3)


def empty_from(length: int, table: Any = TABLE) -> Any:
    """A table without any probability after ``length`` tokens."""
    return lambda prefix: (0.0,) * 4 if len(prefix) >= length else table(prefix)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    ("drafter", "shape"),
    [("none", "none"), ("model", "chain:3"), ("model", "s2_k2_d5"), ("prompt_lookup", "chain:2")],
)
def test_a_target_row_without_mass_fails_the_run_with_round_and_node(drafter, shape, temperature):
    pair: Any = fake_pair(empty_from(6), TABLE, vocabulary="abcd")
    run = decode(ask("abab", drafter, shape, temperature=temperature, max_new_tokens=16), pair)
    assert run.ended.stop_reason == "failed"
    assert run.ended.error is not None
    assert run.ended.error.startswith(f"round {len(run.rounds) + 1}: the target's logits after ")
    assert run.ended.error.endswith("are −∞ for every token: try float32, or other weights.")
    assert len(run.tokens) <= 2


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("shape", ["chain:3", "s2_k2_d5"])
@pytest.mark.parametrize("sampling", [{}, {"top_k": 2}, {"eta": 0.1, "truncate_draft": True}])
def test_a_draft_row_without_mass_ends_the_draft_and_nothing_else(shape, temperature, sampling):
    request = ask("abab", "model", shape, temperature=temperature, max_new_tokens=16, **sampling)
    empty: Any = fake_pair(TABLE, empty_from(6), vocabulary="abcd")
    run = decode(request, empty)
    assert run.ended.error is None
    assert len(run.tokens) == 16
    assert all(not one.nodes for one in run.rounds if sum(len(r.committed) for r in run.rounds[: one.index]) >= 2)
    for one in run.rounds:
        for node in one.nodes:
            assert node.score is None or math.isfinite(node.score)
            assert node.q is None or math.isfinite(node.q)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_an_end_token_that_is_forbidden_where_nothing_else_is_possible_fails_the_run(temperature):
    pair: Any = fake_pair(always(0.0, 0.0, 1.0), vocabulary="abc", eos=(2,))
    run = decode(ask("ab", temperature=temperature, min_new_tokens=4, max_new_tokens=8), pair)
    assert run.tokens == []
    assert run.ended.error == (
        "round 1: the sampling settings leave no token that the target can emit after the root: lower min new tokens, "
        "or take a more moderate temperature or repetition penalty."
    )


def test_a_row_without_mass_fails_its_own_request_alone():
    pair: Any = fake_pair(lambda prefix: (0.0,) * 4 if prefix[0] == 1 else TABLE(prefix), TABLE, vocabulary="abcd")
    bad, good = decode_all([ask("ba", max_new_tokens=4), ask("ab", max_new_tokens=4)], pair)
    assert bad.ended.stop_reason == "failed"
    assert (good.ended.error, len(good.tokens)) == (None, 4)


def test_the_context_of_a_draft_model_that_does_not_draft_limits_nothing():
    pair: Any = fake_pair(TABLE, TABLE, vocabulary="abcd")
    whole = decode(ask("abab" * 4, "prompt_lookup", "chain:4", max_new_tokens=16), pair)
    pair.draft.context = 8
    limited = decode(ask("abab" * 4, "prompt_lookup", "chain:4", max_new_tokens=16), pair)
    assert sum(one.drafted for one in limited.rounds) == sum(one.drafted for one in whole.rounds) > 0
