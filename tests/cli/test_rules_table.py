"""``python -m core rules``: the table of rules.md for any p and q; and ``generate`` with every rule."""

from __future__ import annotations

import pytest

from core.grammar import format_rule, parse_rule
from core.lab.rule_table import TABLE
from tests.core.rules.test_rules import VECTORS

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
        (".5,.3", ".6,.4", "P sums to 0.8: probabilities sum to 1."),
        (".5,.3,.2", ".6,.4", "P has 3 tokens and q has 2: give both over the same tokens."),
        (".5,.7,-.2", ".6,.1,.3", "P has -0.2 at token 3: a probability lies between 0 and 1."),
        (".5,.3,.2", ".6,.1,nan", "Q has nan at token 3: a probability lies between 0 and 1."),
        ("1e308,1e308,0", ".6,.1,.3", "P has 1e+308 at token 1: a probability lies between 0 and 1."),
        ("inf,.3,.2", ".6,.1,.3", "P has inf at token 1: a probability lies between 0 and 1."),
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


def test_a_rule_that_degenerates_is_told_before_it_decodes(generate):
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
