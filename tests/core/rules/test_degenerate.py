"""Requests whose rule has nothing to work on: a notice in one sentence, or a refusal."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from core.grammar import format_rule
from core.results.counterparts import baseline, counterparts
from core.rules.degenerate import notices
from core.types import Lossless
from tests.helpers.decoding import ask, decode
from tests.helpers.fakes import always, fake_pair, hashed
from tests.helpers.rule_texts import RULES


def noticed(drafter: str, shape: str, rule: str, temperature: float = 1.0) -> str:
    return " ".join(notices(ask("abcabc", drafter, shape, rule, temperature=temperature)))


@pytest.mark.parametrize("shape", ["s2_k2_d4", "s1_k2_d3"])
@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:1"])
def test_a_block_of_a_tree_is_refused_with_what_to_choose(drafter, shape):
    with pytest.raises(
        ValidationError, match="a tree with topk 2 branches: choose a chain such as chain:4 or s5_k1_d6"
    ):
        ask(drafter=drafter, shape=shape, rule="block")


@pytest.mark.parametrize(
    ("drafter", "shape"), [("model", "chain:3"), ("model", "s3_k1_d4"), ("prompt_lookup", "chain:3")]
)
def test_a_block_of_a_chain_says_why_its_distortion_is_not_measured(drafter, shape):
    assert noticed(drafter, shape, "block").startswith("Block verification judges a chain as a whole")


def test_a_block_has_no_tree_counterpart_and_its_baseline_is_token_verification():
    one = ask(drafter="model", shape="chain:3", rule="block", temperature=1.0)
    assert {other.kind for other in counterparts(one)} == {"plain", "lossless"}
    other = baseline(one)
    assert (other.request.rule, other.request.sampling) == (Lossless(), one.sampling)
    assert "token by token" in other.reason


@pytest.mark.parametrize("rule", ["cos_we:0.5", "cos_cd:0.5", "lenience:0.5", "spec_cascade:0.5", "typical:0.3"])
def test_a_sampled_chain_needs_no_notice(rule):
    assert noticed("model", "chain:3", rule) == ""


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("cos_we:0.25", "raises the first candidate of a position by 0.25"),
        ("cos_cd:0.5", "accepts it wherever the target gives it any probability"),
        ("overshoot_ceiling:0.5", "raises the first candidate of a position instead of mixing"),
        ("lenience:0.5", "accepts with min(1, p/0.5)"),
        ("min_p_ceiling:0.5,ell=0.25", "takes the first candidate in its set, and others with min(1, p/0.25)"),
        ("spec_cascade:0.5,redraw=draft_in_set", "has no draft mass left in the set and is drawn from the target's"),
        ("typical:0.3,hard=false", "tests each with min(1, p/τ)"),
        ("truncation:top_k=2", "takes the first one inside its set"),
    ],
)
@pytest.mark.parametrize(("drafter", "shape"), [("prompt_lookup", "chain:3"), ("model", "s2_k2_d4")])
def test_a_notice_explains_what_a_rule_does_with_candidates_that_are_not_sampled(rule, sentence, drafter, shape):
    assert sentence in noticed(drafter, shape, rule)


@pytest.mark.parametrize("rule", [*RULES, "block"])
@pytest.mark.parametrize(
    ("drafter", "shape"), [("model", "chain:3"), ("model", "s2_k2_d4"), ("prompt_lookup", "chain:3")]
)
def test_the_notice_about_greedy_decoding_is_true(rule, drafter, shape):
    """Rules without a law of their own decode what plain decoding decodes; all others say so when they don't."""
    if rule == "block" and shape == "s2_k2_d4":
        return
    pair = fake_pair(hashed(3, seed=1), hashed(3, seed=2))
    request = ask("abcabc", drafter, shape, rule, max_new_tokens=16)
    text = " ".join(notices(request))
    if rule == "lossless":
        assert text == ""
        return
    assert "At temperature 0" in text
    assert format_rule(request.rule) in text
    if "of its own law r*" not in text:
        assert decode(request, pair).tokens == decode(ask("abcabc", max_new_tokens=16), pair).tokens


@pytest.mark.parametrize("rule", ["lenience:1", "cos_we:0"])
def test_a_parameter_that_changes_nothing_has_a_notice(rule):
    assert "is the lossless rule: it changes nothing" in noticed("model", "chain:3", rule)


def test_the_notice_of_the_ablations_mentions_that_they_are_renormalised():
    for rule in ("adaptive_interpolation:0.5", "overshoot_ceiling:0.5"):
        assert "doesn't sum to one; it is renormalised here" in noticed("model", "chain:3", rule)


def test_plain_and_lossless_decoding_have_no_notice():
    assert noticed("none", "none", "lossless") == noticed("model", "chain:3", "lossless") == ""


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "lossless"])
def test_every_lossy_rule_has_a_baseline_with_its_reason_in_words(rule):
    for temperature in (0.0, 0.8):
        one = ask(drafter="model", shape="chain:3", rule=rule, temperature=temperature, eta=0.1)
        other = baseline(one)
        assert other.request.rule == Lossless()
        assert (other.request.drafter, other.request.shape, other.request.seed) == (one.drafter, one.shape, one.seed)
        assert format_rule(one.rule) in other.reason
        assert other.reason.endswith(".")
        sampled_alike = other.request.sampling == one.sampling
        assert sampled_alike == (temperature == 0.0 or not rule.startswith(("spec_cascade", "typical", "truncation")))


@pytest.mark.parametrize("shape", ["chain:3", "s3_k1_d4", "s3_k2_d8"])
@pytest.mark.parametrize(("rule", "first"), [("cos_we:0.5", 1), ("cos_we:0.2", 0), ("cos_we:1", 1), ("lossless", 0)])
def test_greedy_decoding_takes_the_argmax_of_the_rules_own_law_of_untempered_distributions(rule, first, shape):
    """(p+q)/2 = (.3, .5, .2) has its argmax at the draft's token, .8p+.2q = (.42, .38, .2) at the target's."""
    pair = fake_pair(always(0.5, 0.3, 0.2), always(0.1, 0.7, 0.2))
    run = decode(ask(drafter="model", shape=shape, rule=rule, max_new_tokens=12), pair)
    for one in run.rounds:
        if one.nodes and first == 1:
            assert one.committed == (1,) * (len(one.committed) - 1) + (0,)  # the bonus is the target's
            assert one.source == "bonus"
            assert {place.distortion.tv for place in one.positions if place.distortion} == {1.0}
        else:
            assert set(one.committed) == {0}
            assert {place.distortion.tv for place in one.positions if place.distortion} <= {0.0}
