"""The statistical test of losslessness: it passes the engine's walk and finds planted bugs with power 0.9 or more."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from core.errors import BadInput
from core.grammar import parse_rule
from core.lab.losslessness import agreement, counted, emitter, power, samples_for
from core.rules.table import induced, token_rule
from core.rules.token_rule import LosslessRule
from core.sampling.allowed import allowed_set
from core.types import AllowedSet
from tests.helpers.rule_texts import RULES

P = torch.tensor([0.5, 0.3, 0.2])
Q = torch.tensor([0.6, 0.1, 0.3])
LOSSLESS = token_rule(parse_rule("lossless"))


class ResamplesFromP(LosslessRule):
    """Bug: a rejection draws from p, not from norm (p−q)₊."""

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        return p


def top_two(row: Tensor) -> Tensor:
    kept = row * allowed_set(AllowedSet(top_k=2), row)
    return kept / kept.sum()


class RawQAfterTopK(LosslessRule):
    """Bug: candidates were drawn from q cut to its top k, but the ratio takes the raw q."""

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        return super().accept(p, Q)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        return super().residual(p, Q)


class NeverRenormalises(LosslessRule):
    """Bug: after a deterministic candidate is rejected, it is zeroed and p is not renormalised."""

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        return (p - q).clamp_min(0.0)


BUGS = {
    # the law that the bug emits, and the walk that has it
    "resamples from p": (
        induced(ResamplesFromP(), P, Q).tolist(),
        emitter(ResamplesFromP(), P, Q),
    ),
    "raw q after top-k": (
        induced(RawQAfterTopK(), P, top_two(Q)).tolist(),
        emitter(RawQAfterTopK(), P, top_two(Q)),
    ),
    # of A and B, tested in this order: A with .5, B with the .3 that was not renormalised, else what is left
    "no renormalisation": (
        [0.5, 0.15, 0.35],
        emitter(NeverRenormalises(), P, torch.tensor([0.5, 0.3, 0.2]), siblings=2, drawing="deterministic"),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_with_power_of_nine_in_ten(bug):
    wrong, emit = BUGS[bug]
    law = P.tolist()
    samples = samples_for(law, wrong, 0.95)
    assert power(law, wrong, samples) >= 0.95 > power(law, wrong, samples - 1)
    found = sum(not agreement(counted(emit, 3, samples, seed), law).lossless for seed in range(40))
    assert found >= 34  # 38 expected; fewer than 34 of 40 happens once in 100 at 0.95, and never with these seeds


def test_the_bugs_emit_the_laws_they_are_said_to():
    """Against the law of the bug itself, each planted walk agrees: the test rejects the bug and nothing else."""
    for wrong, emit in BUGS.values():
        assert agreement(counted(emit, 3, 4000, seed=7), wrong).lossless


@pytest.mark.parametrize(
    ("siblings", "drawing"),
    [(1, "with_replacement"), (3, "with_replacement"), (2, "without_replacement"), (3, "deterministic")],
)
def test_the_engines_own_walk_is_found_lossless(siblings, drawing):
    emit = emitter(LOSSLESS, P, Q, siblings=siblings, drawing=drawing)
    smallest = min(samples_for(P.tolist(), wrong, 0.9) for wrong, _ in BUGS.values())
    found = agreement(counted(emit, 3, max(2000, smallest), seed=1), P.tolist())
    assert found.lossless
    assert found.degrees == 2


@pytest.mark.parametrize("rule", [RULES[i] for i in (1, 3, 5, 7, 9, 13, 22, 28)])
def test_a_lossy_rule_agrees_with_its_own_law_and_not_with_the_targets(rule):
    made = token_rule(parse_rule(rule))
    law = induced(made, P, Q).tolist()
    samples = min(20_000, max(3000, samples_for(P.tolist(), law, 0.99) if law != P.tolist() else 0))
    counts = counted(emitter(made, P, Q), 3, samples, seed=3)
    assert agreement(counts, law).lossless
    if math.dist(law, P.tolist()) > 0.02:
        assert not agreement(counts, P.tolist()).lossless


def test_the_statistic_is_pearsons():
    counts, law = [60, 25, 15], [0.5, 0.3, 0.2]
    expected = stats.chisquare(counts, [50, 30, 20])
    found = agreement(counts, law)
    assert (found.statistic, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))


def test_a_token_that_cannot_be_is_enough():
    found = agreement([99_999, 1], [1.0, 0.0])
    assert (found.impossible, found.lossless) == (1, False)


def test_rare_tokens_are_counted_together():
    law = [0.9, *[0.001] * 100]
    found = agreement([900, *[1] * 100], law)
    assert found.degrees == 20
    assert found.lossless


def test_one_token_alone_is_always_right():
    assert agreement([10], [1.0]).lossless


def test_nothing_to_test_is_a_sentence():
    for counts, law in (([0, 0], [0.5, 0.5]), ([1], [0.5, 0.5])):
        with pytest.raises(BadInput, match="nothing to test"):
            agreement(counts, law)
    with pytest.raises(BadInput, match="too close"):
        samples_for([0.5, 0.5], [0.5, 0.5])
