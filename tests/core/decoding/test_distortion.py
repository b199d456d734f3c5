"""What a run records of its distortion, against independent computations; switching it off; what it costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.decoding.distortion import distance, distortion, induced_law
from core.decoding.siblings import position_of
from core.drafting.draft import Draft
from core.grammar import parse_rule
from core.records import ROOT, Distortion, Ended, Position, Round, Started, TopToken
from core.results.matching import reference_sampling
from core.results.metrics import summarise
from core.rules.table import induced, token_rule
from core.rules.truncation import TruncationRule
from core.sampling.distributions import Distributions
from core.types import Sampling
from tests.helpers.decoding import Decoded, ask, decode
from tests.helpers.fakes import always, fake_pair, hashed
from tests.helpers.rule_texts import RULES
from tests.helpers.sample import counted

P, Q = (0.5, 0.3, 0.2), (0.6, 0.1, 0.3)


def chain_run(rule: str, q: tuple[float, ...] = Q, shape: str = "chain:2") -> Decoded:
    request = ask(drafter="model", shape=shape, rule=rule, max_new_tokens=12, temperature=1.0)
    return decode(request, fake_pair(always(*P), always(*q)))


def measured_positions(run) -> list[Position]:
    return [one for round_ in run.rounds for one in round_.positions if one.q_rest is not None]


@pytest.mark.parametrize("rule", RULES)
def test_a_chain_records_residual_induced_law_and_distance_of_every_tested_position(rule):
    made = token_rule(parse_rule(rule))
    p, q = torch.tensor(P).double(), torch.tensor(Q).double()
    law, residual = induced(made, p, q).numpy(), made.residual(p, q).numpy()
    p_ref = np.array(P)
    if isinstance(made, TruncationRule):
        p_ref = np.where(made.allowed(p).numpy(), p_ref, 0.0)
        p_ref = p_ref / p_ref.sum()
    places = measured_positions(chain_run(rule))
    assert places
    for place in places:
        top = {one.token: one for one in place.top}
        assert [top[token].induced for token in range(3)] == pytest.approx(law, abs=1e-6)
        assert [top[token].residual for token in range(3)] == pytest.approx(residual, abs=1e-6)
        assert place.distortion is not None
        outside = float(law[p_ref == 0].sum())
        assert place.distortion.tv == pytest.approx(0.5 * np.abs(law - p_ref).sum(), abs=1e-6)
        assert place.distortion.escaped_mass == pytest.approx(outside, abs=1e-6)
        assert place.distortion.conditional is False
        if outside > 1e-6:
            assert place.distortion.kl is None
        else:
            inside = law > 0
            kl = float((law[inside] * np.log(law[inside] / p_ref[inside])).sum())
            assert place.distortion.kl == pytest.approx(kl, abs=1e-6)


def test_a_lossless_run_measures_nothing_but_rounding_on_a_whole_vocabulary():
    pair = fake_pair(hashed(16, seed=1), hashed(16, seed=2), vocabulary="abcdefghijklmnop")
    for drafter, shape in (("model", "chain:3"), ("model", "s3_k2_d6"), ("prompt_lookup", "chain:3")):
        run = decode(ask(drafter=drafter, shape=shape, temperature=0.9, top_p=0.9, max_new_tokens=30), pair)
        found = [place.distortion for place in measured_positions(run) if place.distortion]
        assert len(found) == run.summary.distortion_positions
        assert len(found) > 5
        assert max(one.kl or 0.0 for one in found) < 1e-9
        assert max(one.tv for one in found) < 1e-6
        assert {one.escaped_mass for one in found} == {0.0}
        assert run.summary.distortion_kl_undefined == 0


def test_a_tree_under_spec_cascade_surely_emits_its_first_candidate_inside_the_set():
    """So KL is log(1/p_Θ(x)) (Lemma 2's KL_EAGLE), p_Θ = norm (p·1_A): the draft's best is C, then A; A is inside."""
    run = chain_run("spec_cascade:0.5", q=(0.3, 0.1, 0.6), shape="s1_k2_d3")
    found = [place.distortion for place in measured_positions(run) if place.distortion]
    assert found
    for one in found:
        assert (one.kl, one.tv) == (pytest.approx(math.log(0.8 / 0.5), abs=1e-6), pytest.approx(0.375, abs=1e-6))


def test_overshoot_counts_tested_tokens_whose_q_passes_the_rules_ceiling():
    run = chain_run("lossless")
    for round_ in run.rounds:
        for place in round_.positions:
            candidates = [node for node in round_.nodes if node.parent == place.node and node.u is not None]
            if candidates:
                assert place.distortion is not None
                assert place.distortion.overshoot == float(candidates[0].token in (0, 2))
    lenient = chain_run("lenience:0.5")
    assert {place.distortion.overshoot for place in measured_positions(lenient) if place.distortion} == {0.0}
    assert lenient.summary.overshoot == 0.0


@pytest.mark.parametrize(
    ("drafter", "shape", "temperature"),
    [("prompt_lookup", "chain:2", 1.0), ("model", "s2_k2_d4", 1.0), ("model", "chain:2", 0.0)],
)
def test_one_hot_candidates_have_no_overshoot(drafter, shape, temperature):
    pair = fake_pair(always(*P), always(*Q))
    run = decode(ask("aabaab", drafter, shape, temperature=temperature, max_new_tokens=8), pair)
    assert {place.distortion.overshoot for place in measured_positions(run) if place.distortion} == {None}
    assert run.summary.overshoot is None


def test_bonus_positions_are_not_measured():
    run = chain_run("lenience:0.5")
    for place in (place for one in run.rounds for place in one.positions if place.q_rest is None):
        assert place.distortion is None
        assert {(top.residual, top.induced) for top in place.top} == {(None, None)}


@pytest.mark.parametrize("rule", ["lossless", "lenience:0.5", "spec_cascade:0.5", "block", "cos_we:0.5"])
def test_switching_the_measurement_off_changes_no_token_and_records_nothing(rule):
    request = ask(drafter="model", shape="chain:3", rule=rule, temperature=1.0, max_new_tokens=20, seed=3)
    pair = fake_pair(hashed(3, seed=1), hashed(3, seed=2))
    on = decode(request, pair)
    off = decode(request.model_copy(update={"measure_distortion": False}), pair)
    assert off.tokens == on.tokens
    assert [one.nodes for one in off.rounds] == [one.nodes for one in on.rounds]
    assert {place.distortion for one in off.rounds for place in one.positions} == {None}
    assert {one.distortion_s for one in off.rounds} == {None}
    summary = off.summary
    assert (summary.distortion_positions, summary.distortion_kl, summary.distortion_s) == (None, None, None)
    assert on.summary.distortion_s is not None and on.summary.distortion_s > 0.0


def test_plain_decoding_has_nothing_to_measure():
    run = decode(ask(temperature=1.0, max_new_tokens=5), fake_pair(always(*P)))
    assert (run.summary.distortion_positions, run.summary.distortion_kl, run.summary.distortion_s) == (0, None, 0.0)


# -- distance -------------------------------------------------------------------------------------------------------


def test_a_law_that_leaves_the_support_has_no_kl_but_its_escaped_mass():
    assert distance(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.5, 0.5, 0.0])) == (None, 0.25, 0.25)


def test_distances_are_taken_between_normalised_laws():
    kl, tv, escaped = distance(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0]))
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert (kl, tv, escaped) == (pytest.approx(expected), pytest.approx(0.25), 0.0)


def test_equal_laws_have_a_distance_of_exactly_nothing():
    p = torch.softmax(torch.randn(1000, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert distance(p, p) == (0.0, 0.0, 0.0)


# -- summaries ------------------------------------------------------------------------------------------------------

STARTED, ENDED = Started(0, 3, 0.5), Ended(0, "eos", "", 2.0)


def measured_round(index: int, *found: Distortion) -> Round:
    one = counted(len(found), len(found), index=index, at=1.0 + index)
    places = tuple(Position(i - 1, (TopToken(1, "b", 1.0, 1.0),), 0.0, 0.0, each) for i, each in enumerate(found))
    return replace(one, positions=places, distortion_s=0.125)


def test_means_are_over_tested_positions_and_kl_over_those_that_have_one():
    rounds = [
        measured_round(0, Distortion(0.5, 0.2, 0.0, 1.0), Distortion(None, 0.4, 0.3, 0.0)),
        measured_round(1, Distortion(0.1, 0.0, 0.0, None, conditional=True)),
    ]
    found = summarise(STARTED, rounds, ENDED)
    assert found.distortion_kl == pytest.approx(0.3)
    assert found.distortion_tv == pytest.approx(0.2)
    assert found.escaped_mass == pytest.approx(0.1)
    assert found.overshoot == pytest.approx(0.5)
    counts = (found.distortion_positions, found.distortion_kl_undefined, found.distortion_conditional)
    assert counts == (3, 1, 1)
    assert found.distortion_s == 0.25


def test_overshoot_is_a_share_of_tested_tokens_not_of_positions():
    one = measured_round(0, Distortion(0.0, 0.0, 0.0, 0.0))
    two = measured_round(1, Distortion(0.0, 0.0, 0.0, 1.0))
    siblings = tuple(replace(two.nodes[0], fate="rejected") for _ in range(2))
    two = replace(two, nodes=(*siblings, two.nodes[0]))
    assert summarise(STARTED, [one, two], ENDED).overshoot == pytest.approx(3 / 4)


# -- the reference law ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"epsilon": 0.04},
        {"eta": 0.1},
        {"min_p": 0.2, "epsilon": 0.03, "eta": 0.1},
        {"top_k": 4, "top_p": 0.9},
    ],
)
@pytest.mark.parametrize(
    "rule",
    [
        "spec_cascade:0.3",
        "spec_cascade:1",
        "typical:0.3",
        "typical:0.3,delta=0.2",
        "typical:1",
        "truncation:top_k=3",
        "truncation:top_p=0.6",
        "truncation:epsilon=0.1",
        "truncation:eta=0.2",
        "truncation:min_p=0.4,top_k=3",
    ],
)
def test_the_baseline_samples_exactly_the_law_that_the_rule_is_judged_by(rule, sampling):
    """norm (p·1_A), A formed on the finished p: also where the library's min-p would come before ε and η."""
    request = ask(drafter="model", shape="chain:2", rule=rule, temperature=0.8, **sampling)
    made = token_rule(request.rule)
    assert isinstance(made, TruncationRule)
    generator = torch.Generator().manual_seed(9)
    device = torch.device("cpu")
    own = Distributions.of(request.sampling, frozenset(), 1, device)
    baseline = Distributions.of(reference_sampling(request), frozenset(), 1, device)
    for _ in range(60):
        logits = 2 * torch.randn(12, generator=generator)
        p = own.target(logits, [0])
        wanted = p * made.allowed(p)
        assert baseline.target(logits, [0]).tolist() == pytest.approx((wanted / wanted.sum()).tolist(), abs=1e-6)


def test_a_cascade_beside_epsilon_is_no_min_p_of_the_library():
    """The library cuts min-p before ε: the same numbers, but another set, so the baseline names the set itself."""
    request = ask(drafter="model", shape="chain:2", rule="spec_cascade:0.35", temperature=1.0, epsilon=0.2)
    reference = reference_sampling(request)
    assert (reference.min_p, [one.min_p for one in reference.allowed]) == (0.0, [0.35])
    logits = torch.tensor([0.5, 0.19, 0.16, 0.15]).log()

    def law(sampling: Sampling) -> list[float]:
        return Distributions.of(sampling, frozenset(), 1, torch.device("cpu")).target(logits, [0]).tolist()

    assert law(reference) == [1, 0, 0, 0]
    assert law(Sampling(min_p=0.35, epsilon=0.2)) == pytest.approx([0.5 / 0.69, 0.19 / 0.69, 0, 0])


def test_a_law_that_never_leaves_the_set_has_a_divergence_though_rounding_leaves_a_rest():
    p = torch.tensor([0.04429209664842273, 0.39691026912560773, 0.5587976342259695])
    q = torch.tensor([0.0, 0.03500961025345186, 0.9649903897465483])
    draft = Draft.drawn((2,), (ROOT,), [q])
    position = position_of(draft, ROOT, p, token_rule(parse_rule("spec_cascade:0.5,redraw=target")))
    one = induced_law(draft, [0], position)
    found = distortion(draft, [0], position, one.law, one.conditional)
    assert found.escaped_mass == 0.0
    assert found.kl == pytest.approx(0.396895, abs=1e-5)


def test_one_candidate_drawn_without_replacement_follows_the_rules_table():
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])
    draft = Draft.drawn((0,), (ROOT,), [q], drawing="without_replacement")
    position = position_of(draft, ROOT, p, token_rule(parse_rule("spec_cascade:0.5,redraw=draft_in_set")))
    one = induced_law(draft, [0], position)
    assert one.law.tolist() == pytest.approx([6 / 7, 1 / 7, 0.0])
    assert not one.conditional
