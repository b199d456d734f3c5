"""``python -m core rules``: the table of rules.md for any p and q; and ``generate`` with every rule."""

from __future__ import annotations

import pytest

from core.grammar import format_rule, parse_rule
from core.lab.emission import TABLE
from core.rules.catalogue import RULES
from core.rules.token_rule import LosslessRule
from tests.helpers.rule_texts import VECTORS

SEED_PAIR = ("--p", ".5,.3,.2", "--q", ".6,.1,.3")

EVERY = (
    "block",
    "lenience:0.5",
    "cos_we:0.5",
    "cos_cd:0.5",
    "spec_cascade:0.5,redraw=draft_in_set,recompute=true",
    "typical:0.3,hard=false",
    "truncation:top_k=5,min_p=0.01",
    "adaptive_interpolation:0.5",
    "overshoot_ceiling:0.8",
    "min_p_ceiling:0.9,ell=0.95",
)


@pytest.mark.parametrize(
    ("rule", "accept", "mass", "residual", "law", "distance", "divergence"), VECTORS, ids=lambda value: str(value)[:40]
)
def test_one_rule_prints_its_vectors_as_one_json_object(call, rule, accept, mass, residual, law, distance, divergence):
    ran = call("rules", *SEED_PAIR, "--rule", rule, "--json")
    (found,) = ran.objects
    assert ran.code == 0
    assert found["rule"] == format_rule(parse_rule(rule))
    assert found["accept"] == pytest.approx(accept, abs=1e-6)
    assert found["acceptance_mass"] == pytest.approx(mass, abs=1e-6)
    assert found["residual"] == pytest.approx(residual, abs=1e-6)
    assert found["induced"] == pytest.approx(law, abs=1e-6)
    assert found["tv"] == pytest.approx(distance, abs=5e-5)
    if divergence is not None:
        assert found["kl"] == pytest.approx(divergence, abs=5e-6)


def test_without_a_rule_the_whole_table_is_printed(call):
    found = call("rules", *SEED_PAIR, "--json").objects
    assert [one["rule"] for one in found] == list(TABLE)
    assert {one["rule"].partition(":")[0] for one in found} == {rule.partition(":")[0] for rule in (*EVERY, "lossless")}


def test_several_rules_are_printed_in_their_order(call):
    found = call("rules", *SEED_PAIR, "--rule", "lenience:0.5", "--rule", "lossless", "--json").objects
    assert [one["rule"] for one in found] == ["lenience:0.5", "lossless"]


def test_a_terminal_gets_a_table_in_which_a_missing_kl_says_what_escapes(call):
    ran = call("rules", "--p", ".7,.3,0", "--q", ".1,.1,.8", "--rule", "cos_we:0.5", "--rule", "lossless")
    assert ran.code == 0
    assert "cos_we:0.5" in ran.out
    assert "∞ (0.4 escapes)" in ran.out


@pytest.mark.parametrize(
    ("p", "q", "sentence"),
    [
        (".5,.3", ".6,.4", "P sums to 0.8: the probabilities of a distribution sum to 1."),
        (".5,.3,.2", ".6,.4", "P has 3 tokens and q has 2: give both over the same tokens."),
        (".5,.7,-.2", ".6,.1,.3", "P of token 3 is -0.2: a probability can't be negative."),
        (".5,.3,.2", ".6,.1,nan", "Q of token 3 is empty or not a number: type a number from 0 up."),
        (
            "1e308,1e308,0",
            ".6,.1,.3",
            "P sums to more than a number can hold: type smaller values, only their ratios count.",
        ),
        ("inf,.3,.2", ".6,.1,.3", "P of token 1 is empty or not a number: type a number from 0 up."),
        ("", ".6,.1,.3", "P is '': '' is not a number, write it as .5,.3,.2."),
        (".5;.5", ".5,.5", "P is '.5;.5': '.5;.5' is not a number, write it as .5,.3,.2."),
    ],
)
def test_what_is_no_distribution_ends_in_one_sentence_and_exit_code_2(call, p, q, sentence):
    ran = call("rules", "--p", p, "--q", q, "--json")
    assert (ran.code, ran.out, ran.err.strip()) == (2, "", f"Error: {sentence}")


def test_a_rule_that_is_none_ends_in_exit_code_2(call):
    ran = call("rules", *SEED_PAIR, "--rule", "lenience:2")
    assert (ran.code, ran.out) == (2, "")
    assert "Ell is 2.0" in ran.err


def test_a_block_decodes_and_reports_no_distortion_since_its_positions_have_no_law_of_their_own(generate):
    ran = generate("--json", "--drafter", "early_exit:1", "--rule", "block", "--temperature", "0.9", "--seed", "2")
    assert ran.code == 0, ran.err
    (summary,) = ran.summaries
    assert summary["output_tokens"] == 12
    assert (summary["distortion_positions"], summary["distortion_tv"]) == (0, None)
    assert [place["distortion"] for one in ran.rounds for place in one["positions"] if place["distortion"]] == []


@pytest.mark.parametrize("rule", [rule for rule in EVERY if rule != "block"])
def test_every_rule_decodes_and_reports_its_distortion(generate, rule):
    ran = generate("--json", "--drafter", "early_exit:1", "--rule", rule, "--temperature", "0.9", "--seed", "2")
    assert ran.code == 0, ran.err
    (summary,) = ran.summaries
    assert summary["output_tokens"] == 12
    assert summary["distortion_positions"] > 0
    assert 0.0 <= summary["distortion_tv"] <= 1.0
    tested = [place["distortion"] for one in ran.rounds for place in one["positions"] if place["distortion"]]
    assert len(tested) == summary["distortion_positions"]


def test_no_distortion_measures_none(generate):
    ran = generate("--json", "--drafter", "early_exit:1", "--temperature", "0.9", "--no-distortion")
    (summary,) = ran.summaries
    assert (summary["distortion_positions"], summary["distortion_s"]) == (None, None)


def test_a_rule_that_degenerates_is_announced_before_it_decodes(generate):
    ran = generate("--json", "--drafter", "prompt_lookup", "--rule", "cos_cd:0.5", "--temperature", "0.9")
    assert ran.code == 0
    assert "Note: These candidates are not sampled, so q is one-hot" in ran.err


def test_a_block_of_a_tree_is_refused(generate):
    ran = generate("--drafter", "early_exit:1", "--shape", "s3_k2_d6", "--rule", "block")
    assert ran.code == 2
    assert "block verification judges a chain at once" in ran.err.lower()


def test_a_further_allowed_set_is_read_from_the_command_line(generate):
    ran = generate("--json", "--temperature", "0.9", "--allowed", "top_k=1")
    plain = generate("--json", "--temperature", "0")
    assert ran.code == 0
    assert [one["committed"] for one in ran.rounds] == [one["committed"] for one in plain.rounds]
    assert generate("--allowed", "top_k=x").code == 2


def test_the_rules_that_there_are_are_listed_without_p_and_q(call):
    ran = call("rules")
    assert ran.code == 0
    for entry in RULES:
        assert entry.label in ran.out and entry.accept in ran.out


@pytest.mark.parametrize("options", [("--p", ".5,.5"), ("--q", ".5,.5"), ("--rule", "lossless"), ("--test", "10")])
def test_p_without_q_or_a_rule_without_either_is_refused(call, options):
    ran = call("rules", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "Give" in ran.err


def test_every_rule_is_found_to_follow_its_law_by_drawing(call):
    ran = call("rules", *SEED_PAIR, "--test", "600", "--json")
    assert ran.code == 0
    assert [one["rule"] for one in ran.objects] == list(TABLE)
    against = {one["rule"]: one["tested_against"] for one in ran.objects}
    assert against["lossless"] == against["block"] == "p"
    assert against["lenience:0.5"] == "induced"
    assert all(one["follows"] and one["samples"] == 600 for one in ran.objects)


def test_a_rule_that_does_not_follow_its_law_ends_in_a_sentence_and_exit_code_1(call, monkeypatch):
    monkeypatch.setattr(LosslessRule, "residual", lambda rule, p, q: p)  # resamples from p, not from norm (p−q)₊
    ran = call("rules", *SEED_PAIR, "--rule", "lossless", "--rule", "cos_we:0.5", "--test", "2000")
    assert ran.code == 1
    assert "✗ lossless does not follow p." in ran.out
    assert "✓ cos_we:0.5 follows its own law, 0.1000 (TV) away from p" in ran.out


@pytest.mark.parametrize("samples", ["0", "-3", "100000000"])
def test_a_number_of_tokens_that_can_not_be_drawn_is_refused(call, samples):
    ran = call("rules", *SEED_PAIR, "--test", samples)
    assert (ran.code, ran.out) == (2, "")
    assert "tokens can't be drawn" in ran.err
