"""The closed forms of both seeds: vectors of rules.md, thousands of random pairs against direct sums, domain errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from core.errors import BadInput
from core.grammar import parse_rule
from core.lab.budget import Budget, along_cost, expected_tokens, verdict
from core.lab.theory import (
    block_efficiency,
    corollary1,
    delta,
    first_allowed,
    gap,
    kl_eagle,
    kl_eagle_floor,
    kl_sd,
    lemma1,
    lemma1_as_printed,
    lenience_law,
    overshoot,
    pair,
    truncated,
)
from core.rules.table import induced, token_rule

P, Q = (0.5, 0.3, 0.2), (0.6, 0.1, 0.3)
HALF = torch.tensor([True, True, False])
"""The seed pair's min-p set at p_base .5."""


def random_pairs(count: int, seed: int = 0):
    """p, q [V] of 3 to 9 tokens, some with zeros, as float64 arrays."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        size = int(random.integers(3, 10))
        p, q = random.dirichlet(np.full(size, 0.7), 2)
        if random.random() < 0.3:
            p[random.integers(size)] = 0.0
            q[random.integers(size)] = 0.0
        yield p / p.sum(), q / q.sum()


def min_p(p: np.ndarray, base: float) -> np.ndarray:
    return p >= base * p.max()


# -- vectors --------------------------------------------------------------------------------------------------------


def test_the_seed_pairs_values_are_those_of_the_specification():
    assert delta(P, Q, 0.8) == pytest.approx(0.25)
    assert lenience_law(P, Q, 0.8).tolist() == pytest.approx([0.6, 0.15, 0.25])
    effect = lemma1(P, Q, HALF)
    assert (effect.gain, effect.loss, effect.change, effect.z) == pytest.approx((0.1, 0.2, -0.1, 0.8))
    assert gap((0.55, 0.2, 0.25), P).kl == pytest.approx(0.02711, abs=5e-6)
    assert gap((0.857143, 0.142857, 0.0), P).kl == pytest.approx(0.35601, abs=5e-6)


def test_a_law_that_leaves_the_support_has_no_kl_but_an_escaped_mass():
    found = gap((0.75, 0.19, 0.06), truncated(P, HALF))
    assert found.kl is None
    assert found.escaped == pytest.approx(0.06)
    assert found.tv == pytest.approx(0.185)


def test_overshoot_is_the_drafts_mass_above_the_ceiling():
    assert overshoot(P, Q) == pytest.approx(0.9)
    assert overshoot(P, Q, 0.8) == pytest.approx(0.3)
    assert overshoot(P, Q, 0.5) == 0.0


def test_the_articles_budget_has_its_numbers():
    first, second = Budget(0.8, 4, 1, 12, 2, 10), Budget(0.9, 4, 3, 12, 2, 10)
    assert (first.tokens, first.cycle_ms, first.ms_per_token, first.speed_up) == pytest.approx(
        (3.3616, 18, 5.355, 1.868), abs=5e-4
    )
    assert (second.tokens, second.cycle_ms, second.ms_per_token, second.speed_up) == pytest.approx(
        (4.0951, 26, 6.349, 1.575), abs=5e-4
    )
    assert "the first is faster, 1.868 × against 1.575 ×" in verdict(first, second)
    assert verdict(first, first) == "Both drafters are equally fast."
    assert "first commits 3.3616" in verdict(first, Budget(0.5, 4, 1, 12, 2, 10))


def test_a_draft_at_its_break_even_cost_is_as_fast_as_plain_decoding():
    budget = Budget(0.8, 4, 1, 12, 2, 10)
    assert budget.break_even_ms == pytest.approx(4.904)
    assert Budget(0.8, 4, budget.break_even_ms or 0, 12, 2, 10).speed_up == pytest.approx(1.0)
    assert Budget(0.8, 0, 1, 12, 2, 10).break_even_ms is None
    assert (Budget(0.1, 4, 1, 30, 2, 10).break_even_ms or 0) < 0
    costs = along_cost(budget, 8.0, 5)
    assert [cost for cost, _ in costs] == [0, 2, 4, 6, 8]
    assert [ratio for _, ratio in costs] == sorted((ratio for _, ratio in costs), reverse=True)


def test_a_round_without_candidates_commits_one_token_and_sure_ones_all():
    assert expected_tokens(0.8, 0) == 1.0
    assert expected_tokens(1.0, 7) == 8.0
    assert expected_tokens(0.0, 7) == 1.0


def test_block_efficiency_is_the_sum_of_the_ways_to_get_as_far():
    assert block_efficiency([0.8, 0.5]) == pytest.approx(0.8 + 0.4)
    assert block_efficiency([]) == 0.0
    assert block_efficiency([0.8] * 4) == pytest.approx(expected_tokens(0.8, 4) - 1.0)


# -- random pairs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ell", [0.2, 0.5, 0.8, 1.0])
def test_equations_10_and_11_hold_on_random_pairs_as_the_rule_emits_them(ell):
    rule = token_rule(parse_rule(f"lenience:{ell}"))
    for p, q in random_pairs(700, seed=1):
        law = induced(rule, torch.from_numpy(p), torch.from_numpy(q))
        printed = (0.5 * np.abs(q - p / ell).sum() + 0.5 - 0.5 / ell) / (0.5 * np.abs(q - p).sum())
        assert delta(p, q, ell) == pytest.approx(printed, abs=1e-9)
        assert lenience_law(p, q, ell).tolist() == pytest.approx(law.tolist(), abs=1e-9)
        assert 0.0 <= (delta(p, q, ell) or 0.0) <= 1.0 + 1e-12


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_equation_8_the_mixture_is_emitted_on_random_pairs(weight):
    rule = token_rule(parse_rule(f"cos_we:{weight}"))
    for p, q in random_pairs(700, seed=2):
        law = induced(rule, torch.from_numpy(p), torch.from_numpy(q))
        assert law.tolist() == pytest.approx(((1 - weight) * p + weight * q).tolist(), abs=1e-9)


@pytest.mark.parametrize("base", [0.1, 0.5, 0.9])
def test_equation_13_the_restricted_draft_is_emitted_on_random_pairs(base):
    rule = token_rule(parse_rule(f"spec_cascade:{base},redraw=draft_in_set"))
    for p, q in random_pairs(700, seed=3):
        inside = min_p(p, base)
        if not (q * inside).sum():
            continue
        law = induced(rule, torch.from_numpy(p), torch.from_numpy(q))
        assert law.tolist() == pytest.approx((q * inside / (q * inside).sum()).tolist(), abs=1e-9)


@pytest.mark.parametrize("base", [0.1, 0.5, 0.9])
def test_lemma_1_is_the_direct_difference_of_acceptance_on_random_pairs(base):
    for p, q in random_pairs(700, seed=4):
        inside = min_p(p, base)
        kept = p * inside / (p * inside).sum()
        found = lemma1(p, q, torch.from_numpy(inside))
        assert found.change == pytest.approx(np.minimum(kept, q).sum() - np.minimum(p, q).sum(), abs=1e-9)
        assert found.direct == pytest.approx(found.change, abs=1e-9)
        assert found.gain >= 0.0 and found.loss >= 0.0
        third = np.minimum(np.maximum(q - p, 0), (1 / found.z - 1) * p) <= p / found.z + 1e-12
        assert third[inside].all()


def test_lemma_1_as_printed_counts_the_loss_once_for_each_allowed_token():
    assert lemma1_as_printed(P, Q, HALF) == pytest.approx(0.1 - 2 * 0.2)
    assert lemma1_as_printed(P, Q, HALF) != pytest.approx(lemma1(P, Q, HALF).direct)


def test_truncating_the_target_alone_costs_exactly_its_discarded_mass_when_the_draft_is_the_target():
    for p, _ in random_pairs(200, seed=5):
        found = lemma1(p, p, torch.from_numpy(min_p(p, 0.4)))
        assert found.change == pytest.approx(found.z - 1.0, abs=1e-9)


def test_both_divergences_of_lemma_2_are_those_of_the_laws_they_compare():
    for p, q in random_pairs(500, seed=6):
        inside = min_p(p, 0.3)
        mask = torch.from_numpy(inside)
        kept = p * inside / (p * inside).sum()
        ours = q * inside
        found = kl_sd(p, q, mask)
        if not ours.sum():
            assert found is None
            continue
        ours = ours / ours.sum()
        terms = [a * math.log(a / b) for a, b in zip(ours, kept, strict=True) if a > 0]
        assert found == pytest.approx(sum(terms), abs=1e-9)
        token = int(np.flatnonzero(inside)[-1])
        assert kl_eagle(p, mask, token) == pytest.approx(-math.log(kept[token]), abs=1e-9)
        assert kl_eagle(p, mask, token) >= kl_eagle_floor(p, mask) - 1e-12


def test_proposition_1_the_divergence_of_standard_decoding_vanishes_and_that_of_eagle_stays():
    p, q = np.array([0.4, 0.35, 0.15, 0.1]), np.array([0.1, 0.3, 0.2, 0.4])
    mask = torch.from_numpy(min_p(p, 0.3))
    sd = [kl_sd(p, p + step * (q - p), mask) or 0.0 for step in (1.0, 0.1, 0.01, 0.001, 0.0)]
    assert sd == sorted(sd, reverse=True)
    assert sd[-2] < 1e-6 and sd[-1] == 0.0
    assert kl_eagle(p, mask, 0) == pytest.approx(kl_eagle_floor(p, mask)) and kl_eagle_floor(p, mask) > 0.5
    alone = torch.tensor([True, False, False, False])
    assert kl_eagle_floor(p, alone) == 0.0


def test_corollary_1_a_cascade_accepts_at_least_as_often_on_random_candidate_sets():
    random = np.random.default_rng(7)
    strict = 0
    for p, _ in random_pairs(500, seed=7):
        inside = min_p(p, 0.3)
        kept = p * inside / (p * inside).sum()
        candidates = random.choice(len(p), size=int(random.integers(0, len(p) + 1)), replace=False).tolist()
        found = corollary1(p, torch.from_numpy(inside), candidates)
        assert found.lossless == pytest.approx(sum(kept[token] for token in candidates), abs=1e-9)
        assert found.spec_cascade == float(any(inside[token] and p[token] > 0 for token in candidates))
        assert found.lossless <= found.spec_cascade
        strict += 0.0 < found.lossless < 1.0 - 1e-9
    assert strict > 50


def test_proposition_2_a_cascade_has_the_larger_block_efficiency():
    sets = ([0, 2], [1], [2])
    found = [corollary1(P, HALF, candidates) for candidates in sets]
    lossless = block_efficiency([one.lossless for one in found])
    cascade = block_efficiency([one.spec_cascade for one in found])
    assert lossless == pytest.approx(0.625 + 0.625 * 0.375)
    assert cascade == 2.0
    assert first_allowed([2, 1, 0], HALF) == 1 and first_allowed([2], HALF) is None


# -- domains --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "p has no tokens"),
        ([0.5, float("nan")], "p of token 2 is empty or not a number"),
        ([0.5, float("inf")], "p of token 2 is empty or not a number"),
        ([1.5, -0.5], "p of token 2 is -0.5"),
        ([0.5, 0.4], "p sums to 0.9"),
        ([0.0, 0.0], "p is all zero"),
    ],
)
def test_what_is_no_distribution_is_refused_with_its_value(values, says):
    with pytest.raises(BadInput, match=says):
        pair(values, values)


def test_pairs_of_different_lengths_are_refused():
    with pytest.raises(BadInput, match="p has 3 tokens and q has 2"):
        gap(P, (0.5, 0.5))


@pytest.mark.parametrize("ell", [0.0, -1.0, 1.1, float("nan")])
def test_a_lenience_outside_its_range_is_refused(ell):
    with pytest.raises(BadInput, match="ℓ is"):
        delta(P, Q, ell)


def test_delta_has_no_value_where_draft_and_target_are_the_same():
    assert delta(P, P, 0.5) is None
    assert lenience_law(P, P, 0.5).tolist() == pytest.approx(list(P))


def test_an_allowed_set_without_mass_or_of_another_size_is_refused():
    with pytest.raises(BadInput, match="no mass on the allowed set"):
        lemma1((1.0, 0.0), (0.5, 0.5), torch.tensor([False, True]))
    with pytest.raises(BadInput, match="The allowed set is over"):
        lemma1(P, Q, torch.tensor([True]))
    assert kl_sd((0.5, 0.5), (1.0, 0.0), torch.tensor([False, True])) is None


def test_candidates_that_are_no_set_of_tokens_are_refused():
    for candidates in ([0, 0], [3], [-1]):
        with pytest.raises(BadInput, match="is no set of candidates"):
            corollary1(P, HALF, candidates)
    for token in (2, 7, -1):
        with pytest.raises(BadInput, match="not in the allowed set"):
            kl_eagle(P, HALF, token)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_an_acceptance_outside_0_to_1_is_refused(share):
    with pytest.raises(BadInput, match="acceptance at position 2"):
        block_efficiency([0.5, share])
    with pytest.raises(BadInput, match="α is"):
        expected_tokens(share, 4)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gamma": -1}, "γ is -1"),
        ({"gamma": 10**6}, "γ is 1000000"),
        ({"draft_ms": float("nan")}, "draft takes nan ms"),
        ({"verify_ms": -1.0}, "verify takes -1.0 ms"),
        ({"baseline_ms": 0.0}, "nothing to speed up"),
        ({"draft_ms": 0.0, "verify_ms": 0.0, "state_ms": 0.0}, "nothing to speed up"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(fields, says):
    sound = {"alpha": 0.8, "gamma": 4, "draft_ms": 1.0, "verify_ms": 12.0, "state_ms": 2.0, "baseline_ms": 10.0}
    with pytest.raises(BadInput, match=says):
        Budget(**(sound | fields))
