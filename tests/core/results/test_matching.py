"""Which runs compare like with like, and the plain run that a speed-up is measured against."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import Fingerprint
from core.results.fingerprint import fingerprint
from core.results.matching import UNDER_TEST, Difference, differences, matched, plain_counterpart, reference_sampling
from core.types import AllowedSet, Lossless, NoDrafter, NoShape, Request, Sampling, Stops
from tests.helpers.fakes import always, fake_pair

PAIR = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))


def request(drafter: str = "model", shape: str = "chain:4", rule: str = "lossless", **sampling: float) -> Request:
    return Request(
        prompt="abc",
        sampling=Sampling(**{"temperature": 0.7, **sampling}),  # type: ignore[arg-type]
        stops=Stops(max_new_tokens=32, stop_strings=("\n\n",)),
        drafter=parse_drafter(drafter),
        shape=parse_shape(shape),
        rule=parse_rule(rule),
        seed=3,
    )


def prints(one: Request) -> Fingerprint:
    return fingerprint(PAIR, one)  # type: ignore[arg-type]


def test_equal_fingerprints_have_no_differences_and_match():
    one = prints(request())
    assert differences(one, prints(request())) == []
    assert matched(one, one)


def test_a_difference_names_the_field_and_both_values():
    one = prints(request())
    assert differences(one, replace(one, seed=4)) == [Difference("seed", "3", "4")]


@pytest.mark.parametrize("name", [one.name for one in fields(Fingerprint)])
def test_any_other_field_than_the_thing_under_test_parts_two_runs(name):
    one = prints(request())
    other = replace(one, **{name: {"torch": "0"} if name == "versions" else "other"})
    assert [difference.field for difference in differences(one, other)] == [name]
    assert matched(one, other) is (name in {"draft", "draft_hash", "drafting", "sampling", "rule"})


def test_what_may_differ_says_how_candidates_are_made():
    assert {"draft", "draft_hash", "drafting", "sampling", "rule"} == UNDER_TEST


@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:1"])
@pytest.mark.parametrize("shape", ["chain:4", "s3_k2_d6"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0}, {"top_k": 20, "top_p": 0.8}, {"min_p": 0.1}])
@pytest.mark.parametrize("rule", ["lossless", "lenience:0.4", "spec_cascade:0.5", "spec_cascade:1,redraw=target"])
def test_every_run_matches_its_plain_counterpart(drafter, shape, sampling, rule):
    one = request(drafter, shape, rule, **sampling)
    plain = plain_counterpart(one)
    assert (plain.drafter, plain.shape, plain.rule) == (NoDrafter(), NoShape(), Lossless())
    assert (plain.prompt, plain.chat, plain.stops, plain.seed) == (one.prompt, one.chat, one.stops, one.seed)
    assert matched(prints(one), prints(plain))


def test_a_plain_run_is_its_own_counterpart():
    plain = request("none", "none")
    assert plain_counterpart(plain) == plain


def test_chain_and_tree_match_and_differ_in_drafting_alone():
    found = differences(prints(request(shape="chain:5")), prints(request(shape="s3_k2_d6")))
    assert found == [Difference("drafting", "model chain:5: sampled chain", "model s3_k2_d6: deterministic tree")]


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "abd"},
        {"seed": 4},
        {"stops": Stops(max_new_tokens=33, stop_strings=("\n\n",))},
        {"stops": Stops(max_new_tokens=32)},
        {"sampling": Sampling(temperature=0.8)},
        {"sampling": Sampling(temperature=0.7, min_p=0.1)},
        {"chat": False},
    ],
)
def test_runs_that_ask_for_something_else_do_not_match(change):
    one = request()
    assert not matched(prints(one), prints(one.model_copy(update=change)))


# -- the reference law ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["lossless", "lenience:0.4"])
def test_a_rule_without_an_allowed_set_refers_to_the_same_sampling(rule):
    one = request(rule=rule, min_p=0.1)
    assert reference_sampling(one) == one.sampling


@pytest.mark.parametrize(("min_p", "p_base", "expected"), [(0.0, 0.5, 0.5), (0.1, 0.5, 0.5), (0.7, 0.5, 0.7)])
def test_a_cascade_refers_to_the_stricter_of_its_own_set_and_the_sampling(min_p, p_base, expected):
    one = request(rule=f"spec_cascade:{p_base}", min_p=min_p)
    assert reference_sampling(one) == one.sampling.model_copy(update={"min_p": expected})


def test_a_cascade_of_p_base_1_refers_to_the_most_probable_tokens():
    one = request(rule="spec_cascade:1")
    assert reference_sampling(one) == one.sampling.model_copy(update={"allowed": (AllowedSet(min_p=1.0),)})


def test_a_greedy_cascade_refers_to_greedy_decoding():
    one = request(rule="spec_cascade:0.5", temperature=0.0)
    assert reference_sampling(one) == one.sampling


def test_a_cascade_and_lossless_under_its_allowed_set_match_but_lossless_without_it_does_not():
    cascade = prints(request(rule="spec_cascade:0.5"))
    assert matched(cascade, prints(request(min_p=0.5)))
    assert not matched(cascade, prints(request()))
    assert not matched(cascade, prints(request(min_p=0.1)))
