"""Which runs compare like with like, and the plain run that a speed-up is measured against."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import UNKNOWN, Fingerprint, RunStatus, Started, Summary
from core.results.fingerprint import fingerprint
from core.results.matching import (
    UNDER_TEST,
    Difference,
    differences,
    has_speed_up,
    matched,
    measured_speed_up,
    plain_counterpart,
    reference_sampling,
    relation,
    word,
)
from core.results.metrics import summarise
from core.types import AllowedSet, Lossless, NoDrafter, NoShape, PairSpec, Request, RunSpec, Sampling, Stops
from tests.helpers import sample
from tests.helpers.fakes import always, fake_pair

PAIR = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
STARTED = Started(request=0, prompt_tokens=3, prefill_s=0.0, prompt_ids_hash="a1", batch=1)


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
    return fingerprint(PAIR, one, STARTED)  # type: ignore[arg-type]


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


# -- a run against its baseline


def test_a_run_beside_itself_is_matched_and_differs_in_nothing():
    found = relation(sample.fingerprint(), sample.fingerprint())
    assert found.matched
    assert (found.tested, found.confounding) == ((), ())


def test_the_thing_under_test_may_differ():
    chain, tree = sample.fingerprint("model chain:5: sampled chain"), sample.fingerprint("model s3_k2_d6: tree")
    found = relation(chain, replace(tree, rule="lenience:0.4", draft="d"))
    assert found.matched
    assert {difference.field for difference in found.tested} == {"drafting", "rule", "draft"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 1), ("device", "gpu"), ("precision", "bfloat16"), ("reference_law", "T=1"), ("prompt_hash", "z")],
)
def test_anything_else_that_differs_is_named_and_breaks_the_match(field, value):
    base = sample.fingerprint()
    other = replace(base, **{field: value})
    found = relation(base, other)
    assert found.confounding == (Difference(field, str(getattr(base, field)), str(value)),)
    assert not found.matched
    assert not matched(base, other)
    assert field not in UNDER_TEST


def test_another_sampling_is_under_test_only_under_one_law():
    base = sample.fingerprint()
    same_law, other_law = replace(base, sampling="x"), replace(base, sampling="x", reference_law="x")
    assert [difference.field for difference in relation(base, same_law).tested] == ["sampling"]
    found = relation(base, other_law)
    assert ([d.field for d in found.tested], {d.field for d in found.confounding}) == (
        [],
        {"sampling", "reference_law"},
    )


def test_library_versions_are_named_one_by_one():
    base = replace(sample.fingerprint(), versions={"torch": "2.1", "python": "3.11"})
    other = replace(base, versions={"torch": "2.2", "python": "3.11", "flash": "1"})
    assert relation(base, other).confounding == (
        Difference("versions.flash", "none", "1"),
        Difference("versions.torch", "2.1", "2.2"),
    )


def test_another_precision_is_another_target_and_another_seed_is_not():
    base = sample.fingerprint()
    assert relation(base, replace(base, precision="int8")).other_target
    assert not relation(base, replace(base, seed=9)).other_target


# -- the measured speed-up


@dataclass(frozen=True)
class Run:
    """A run of 10 tokens/s, or of another speed, that ended in one of the app's sessions."""

    spec: RunSpec
    fingerprint: Fingerprint | None
    summary: Summary | None
    session: str = "now"
    status: RunStatus = "done"


def run(drafter: str = "model", tokens_per_second: float = 10.0) -> Run:
    asked = request(drafter, "chain:4" if drafter != "none" else "none")
    found = summarise(sample.started(), [sample.plain()], sample.ended([sample.plain()]))
    return Run(
        RunSpec(pair=PairSpec(), request=asked), prints(asked), replace(found, tokens_per_second=tokens_per_second)
    )


def test_a_speed_up_is_against_the_first_matched_plain_run_of_the_session():
    plain = run("none", 4.0)
    assert measured_speed_up(run(), [run(), plain, run("none", 5.0)]) == 2.5
    assert has_speed_up(run())


@pytest.mark.parametrize(
    "changes",
    [
        {"session": "earlier"},
        {"status": "cancelled"},
        {"fingerprint": None},
        {"summary": None},
        {"fingerprint": prints(request("none", "none", temperature=0.5))},
    ],
)
def test_a_plain_run_of_another_session_law_or_end_gives_no_speed_up(changes):
    assert measured_speed_up(run(), [replace(run("none"), **changes)]) is None


@pytest.mark.parametrize("changes", [{"status": "failed"}, {"fingerprint": None}, {"summary": None}])
def test_a_run_that_did_not_end_by_its_own_stop_has_no_speed_up_and_reads_no_other_run(changes):
    def others():
        raise AssertionError("read")
        yield

    unfinished = replace(run(), **changes)
    assert not has_speed_up(unfinished)
    assert measured_speed_up(unfinished, others()) is None
    assert measured_speed_up(run("none"), others()) is None


@pytest.mark.parametrize("change", [{"prompt_ids_hash": UNKNOWN}, {"end_tokens": UNKNOWN}, {"batch": None}])
def test_a_field_that_an_earlier_version_did_not_store_is_no_match_and_is_unknown(change):
    new, old = sample.fingerprint(), replace(sample.fingerprint(), **change)
    for one, other in ((new, old), (old, new)):
        (found,) = relation(one, other).confounding
        assert (found.field, found.unknown) == (next(iter(change)), True)


def test_a_model_of_the_name_unknown_is_known():
    (found,) = relation(sample.fingerprint(), replace(sample.fingerprint(), target=UNKNOWN)).confounding
    assert not found.unknown


PLAIN = ("none", "none")


@pytest.mark.parametrize(
    ("base", "run", "said"),
    [
        (PLAIN, ("model", "s6_k8_d64"), "matched"),
        (("model", "chain:4"), PLAIN, "matched"),
        (("model", "chain:2"), ("model", "s6_k8_d64"), "budget"),
        (("model", "chain:4"), ("prompt_lookup", "chain:6"), "budget"),
        (("model", "chain:4"), ("model", "s2_k2_d5"), "candidates"),
        (("model", "chain:4"), ("prompt_lookup", "chain:4"), "candidates"),
        (("model", "s4_k1_d5"), ("model", "s2_k2_d5"), "matched"),
    ],
)
def test_two_runs_have_one_of_four_words(base, run, said):
    one, other = (plain_counterpart(request()) if of is PLAIN else request(*of) for of in (base, run))
    assert word(relation(prints(one), prints(other)), one, other) == said


def test_greedy_chain_and_tree_of_one_budget_are_matched():
    one, other = request(temperature=0.0), request(shape="s2_k2_d5", temperature=0.0)
    assert word(relation(prints(one), prints(other)), one, other) == "matched"


def test_another_setting_differs_whatever_the_budgets():
    one, other = request(shape="chain:2"), request(shape="s6_k8_d64", top_k=5)
    assert word(relation(prints(one), prints(other)), one, other) == "differs"
