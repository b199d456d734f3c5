"""The counterpart of a run: what it is compared with, and why."""

from __future__ import annotations

import pytest

from core.grammar import format_shape, parse_shape
from core.records import Started
from core.results.counterparts import counterparts
from core.results.fingerprint import fingerprint
from core.results.matching import matched
from core.types import Lossless
from tests.helpers.decoding import ask
from tests.helpers.fakes import always, fake_pair

PAIR = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))


def of(kind, request):
    return next((one for one in counterparts(request) if one.kind == kind), None)


@pytest.mark.parametrize(
    ("shape", "tree"),
    [("chain:2", "s1_k2_d3"), ("chain:4", "s2_k2_d5"), ("chain:5", "s3_k2_d6"), ("s5_k1_d6", "s3_k2_d6")],
)
def test_a_chain_is_compared_with_a_tree_of_the_same_budget(shape, tree):
    one = ask(drafter="prompt_lookup", shape=shape)
    other = of("tree", one)
    assert other is not None
    assert format_shape(other.request.shape) == tree
    assert other.request.shape.drafted == one.shape.drafted


@pytest.mark.parametrize(("shape", "chain"), [("s3_k2_d6", "s5_k1_d6"), ("s2_k2_d5", "s4_k1_d5")])
def test_a_tree_is_compared_with_a_deterministic_chain_of_the_same_budget(shape, chain):
    other = of("chain", ask(drafter="prompt_lookup", shape=shape))
    assert other is not None
    assert format_shape(other.request.shape) == chain
    assert other.reason == f"A chain with the same budget ({parse_shape(shape).drafted + 1} nodes a round)."


@pytest.mark.parametrize(
    ("drafter", "shape", "temperature", "sampled"),
    [
        ("model", "chain:4", 0.7, True),
        ("model", "chain:4", 0.0, False),
        ("model", "s4_k1_d5", 0.7, False),
        ("prompt_lookup", "chain:4", 0.7, False),
    ],
)
def test_a_trees_reason_speaks_of_samples_only_where_the_chain_has_samples(drafter, shape, temperature, sampled):
    other = of("tree", ask(drafter=drafter, shape=shape, temperature=temperature))
    assert other is not None
    assert ("not samples" in other.reason) is sampled


def test_one_candidate_has_no_tree_of_its_budget():
    assert of("tree", ask(drafter="prompt_lookup", shape="chain:1")) is None


@pytest.mark.parametrize("rule", ["lenience:0.4", "spec_cascade:0.5,redraw=target"])
def test_a_lossy_rule_is_compared_with_lossless_under_its_reference_law(rule):
    one = ask(drafter="model", shape="chain:3", rule=rule, temperature=0.7)
    other = of("lossless", one)
    assert other is not None
    assert other.request.rule == Lossless()
    started = Started(request=0, prompt_tokens=3, prefill_s=0.0, prompt_ids_hash="a1", batch=1)
    prints = [fingerprint(PAIR, request, started) for request in (one, other.request)]  # pyright: ignore[reportArgumentType]
    assert matched(*prints)
    assert other.request.sampling.min_p == (0.5 if rule.startswith("spec") else 0.0)
    assert rule in other.reason


def test_a_lossless_run_has_no_baseline_and_a_plain_run_no_counterpart_at_all():
    assert of("lossless", ask(drafter="model", shape="chain:3")) is None
    assert counterparts(ask()) == []


def test_every_counterpart_but_the_rule_keeps_prompt_stops_and_seed():
    one = ask(drafter="model", shape="s3_k2_d6", rule="lenience:0.5", temperature=0.7, stop=["x"], seed=5)
    assert {other.kind for other in counterparts(one)} == {"plain", "chain", "lossless"}
    for other in counterparts(one):
        kept = (other.request.prompt, other.request.stops, other.request.seed)
        assert kept == (one.prompt, one.stops, one.seed)


@pytest.mark.parametrize("shape", ["chain:128", "chain:200", "chain:256", "s64_k8_d257", "s64_k2_d100"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_large_budget_has_counterparts_of_that_budget_too(shape, temperature):
    one = ask(drafter="model", shape=shape, temperature=temperature)
    found = [other for other in counterparts(one) if other.kind in ("chain", "tree")]
    assert [other.request.shape.drafted for other in found] == [one.shape.drafted]
    assert ("samples, not the draft's best" in found[0].reason) == (shape[0] == "s" and temperature > 0)


def test_a_sampled_chain_is_offered_the_chain_of_the_drafts_best_tokens():
    other = of("best", ask(drafter="model", shape="chain:4", temperature=0.7))
    assert other is not None
    assert format_shape(other.request.shape) == "s4_k1_d5"
    assert not other.request.samples_candidates


@pytest.mark.parametrize(
    ("drafter", "shape", "temperature", "rule"),
    [
        ("model", "chain:4", 0.0, "lossless"),
        ("prompt_lookup", "chain:4", 0.7, "lossless"),
        ("model", "s4_k1_d5", 0.7, "lossless"),
        ("model", "chain:4", 0.7, "block"),
    ],
)
def test_candidates_that_are_the_best_already_have_no_other_best(drafter, shape, temperature, rule):
    one = ask(drafter=drafter, shape=shape, temperature=temperature, rule=rule)
    assert of("best", one) is None
