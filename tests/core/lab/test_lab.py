"""The rule lab's engine: every rule's record, small vocabularies, drawing through the walk, the article's replay."""

from __future__ import annotations

import math

import pytest
import torch

from core.drafting.draft import Drawing
from core.errors import BadInput
from core.grammar import parse_rule, rule_text
from core.lab.article import replay
from core.lab.drawing import chain_rounds, exact_law, sibling_rounds, wilson
from core.lab.emission import emission, facts
from core.lab.vocabularies import PRESETS, REST, lab_pair, of_position, of_preset
from core.records import ROOT, Position, TopToken
from core.rules.catalogue import BY_NAME, LAB_RULES
from core.rules.table import induced, token_rule
from core.types import CosWE, Lossless
from tests.helpers.rule_texts import RULES as TEXTS

P, Q = (0.5, 0.3, 0.2), (0.6, 0.1, 0.3)
P64, Q64 = (torch.tensor(row, dtype=torch.float64) for row in (P, Q))
ARTICLE = of_preset("article")
DRAWINGS: tuple[Drawing, ...] = ("with_replacement", "without_replacement", "deterministic")


# -- records --------------------------------------------------------------------------------------------------------


def test_a_record_has_the_values_of_the_specification():
    one = emission("spec_cascade:0.5,redraw=target", P, Q)
    assert one.accept == (1, 1, 0) and one.accepted == pytest.approx((0.6, 0.1, 0))
    assert one.residual == pytest.approx(P) and one.induced == pytest.approx((0.75, 0.19, 0.06))
    assert (one.mass, one.tv, one.kl) == pytest.approx((0.7, 0.25, 0.14508), abs=5e-6)
    assert one.reference == pytest.approx((0.625, 0.375, 0)) and one.ref_kl is None
    assert (one.ref_tv, one.ref_escaped) == pytest.approx((0.185, 0.06))
    assert one.allowed == (True, True, False) and one.note == ""
    assert emission("lenience:0.8", P, Q).overshoot == pytest.approx(0.3)
    assert emission("lossless", P, Q).allowed is None


def test_a_draft_without_mass_on_the_allowed_set_falls_back_and_says_so():
    one = emission("spec_cascade:0.5,redraw=draft_in_set", P, (0, 0, 1))
    assert "no mass on the allowed set" in one.note and one.residual == pytest.approx((0.625, 0.375, 0))
    assert one.mass == 0.0


def test_contrasting_with_a_draft_of_other_tokens_leaves_the_target_and_says_so():
    one = emission("cos_cd:0.5", (0.5, 0.5, 0.0), (0.0, 0.0, 1.0))
    assert "r* is p" in one.note and one.induced == (0.5, 0.5, 0.0)


def test_the_mixtures_weight_is_said_in_both_meanings_of_the_papers_lambda():
    assert "λ is 0.8 in its Eq. 7-8 and 0.2 in its tables" in BY_NAME["cos_we"].remark(CosWE(draft_weight=0.2))
    assert BY_NAME["lossless"].remark(Lossless()) == ""


@pytest.mark.parametrize("text", TEXTS)
def test_every_record_is_a_law_and_adds_up(text):
    for preset in ("article", "unrelated", "peaked"):
        pair = of_preset(preset)
        one = emission(text, pair.p, pair.q)
        assert sum(one.induced) == pytest.approx(1.0, abs=1e-9)
        assert sum(one.accepted) == pytest.approx(one.mass, abs=1e-9)
        emitted = [a + (1 - one.mass) * r for a, r in zip(one.accepted, one.residual, strict=True)]
        assert one.induced == pytest.approx(emitted, abs=1e-9)
        assert one.tv == pytest.approx(sum(abs(a - b) for a, b in zip(one.induced, pair.p, strict=True)) / 2, abs=1e-9)
        assert (one.kl is None) == (one.escaped > 0) and (one.ref_kl is None) == (one.ref_escaped > 0)


def test_no_rule_and_no_distribution_are_refused_in_sentences():
    with pytest.raises(BadInput, match="is no rule"):
        emission("nonsense:1", P, Q)
    with pytest.raises(BadInput, match="p of token 1 is empty or not a number"):
        emission("lossless", (float("nan"), 1.0), (0.5, 0.5))
    with pytest.raises(BadInput, match="ell"):
        rule_text(BY_NAME["lenience"], {"ell": 2.0})


def test_the_pairs_facts_are_its_overlap_distance_and_entropies():
    found = facts(P, Q)
    assert (found.acceptance, found.tv) == pytest.approx((0.8, 0.2))
    assert found.overlap == pytest.approx((0.5, 0.1, 0.2))
    assert found.kl == pytest.approx(0.12117, abs=5e-6)
    assert found.entropy_p == pytest.approx(-sum(x * math.log(x) for x in P))
    assert facts((1.0, 0.0), (0.5, 0.5)).kl is None


# -- vocabularies ---------------------------------------------------------------------------------------------------


def test_values_that_do_not_sum_to_1_are_scaled_and_kept_as_given():
    pair = lab_pair(["x", "y"], [2.0, 6.0], [1.0, 1.0])
    assert pair.p == (0.25, 0.75) and pair.raw_p == (2.0, 6.0)
    assert pair.scaled == (("p", 8.0), ("q", 2.0))
    assert ARTICLE.scaled == ()


@pytest.mark.parametrize(
    ("p", "q", "says"),
    [
        ([float("nan"), 1], [1, 1], "p of x is empty or not a number"),
        ([1, 1], [1, float("inf")], "q of y is empty or not a number"),
        ([1, -1], [1, 1], "p of y is -1"),
        ([0, 0], [1, 1], "p is all zero"),
        ([1e308, 1e308], [1, 1], "p sums to more than a number can hold"),
        ([1], [1, 1], "takes 2 to"),
    ],
)
def test_columns_that_are_no_distribution_are_refused_with_token_and_value(p, q, says):
    with pytest.raises(BadInput, match=says):
        lab_pair(["x", "y"], p, q)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_pair_that_sums_to_1_but_for_rounding(name):
    pair = of_preset(name)
    assert sum(pair.p) == pytest.approx(1) and sum(pair.q) == pytest.approx(1)
    assert pair.scaled == ()


def test_presets_are_as_close_as_their_names_say():
    acceptance = {name: facts(of_preset(name).p, of_preset(name).q).acceptance for name in PRESETS}
    assert acceptance["aligned"] > 0.9 > acceptance["overlapping"] > 0.5 > 0.3 > acceptance["unrelated"]
    with pytest.raises(BadInput, match="is no preset"):
        of_preset("nonsense")


def test_a_stored_position_keeps_the_mass_of_all_other_tokens_as_the_rest():
    top = (TopToken(5, " a", 0.5, 0.25), TopToken(6, " a", 0.2, 0.5), TopToken(7, "", 0.1, 0.0))
    pair = of_position(Position(ROOT, top, p_rest=0.2, q_rest=0.25))
    assert pair.tokens == (" a", " a (2)", "⟨7⟩", REST)
    assert pair.p == pytest.approx((0.5, 0.2, 0.1, 0.2)) and pair.q == pytest.approx((0.25, 0.5, 0.0, 0.25))
    assert pair.has_rest
    whole = of_position(Position(ROOT, top[:2], p_rest=0.0, q_rest=0.0))
    assert whole.size == 2 and not whole.has_rest


def test_a_token_that_reads_like_the_rest_is_told_apart_from_it():
    top = (TopToken(5, "rest", 0.5, 0.25), TopToken(6, "b", 0.3, 0.5))
    assert of_position(Position(ROOT, top, p_rest=0.2, q_rest=0.25)).tokens == ("rest (1)", "b", REST)


def test_a_position_where_nothing_was_drafted_is_refused():
    with pytest.raises(BadInput, match="Nothing was drafted"):
        of_position(Position(ROOT, (TopToken(5, "a", 1.0, None),), p_rest=0.0, q_rest=None))


# -- drawing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*TEXTS, "block"])
def test_what_a_chain_emits_first_agrees_with_the_induced_law(text):
    found = chain_rounds(text, P, Q, gamma=1, rounds=700, seed=11)
    law = induced(token_rule(parse_rule(text)), P64, Q64)
    assert [share.exact for share in found.law] == pytest.approx(law.tolist(), abs=1e-9)
    assert found.outside == 0, found


@pytest.mark.parametrize("drawing", DRAWINGS)
@pytest.mark.parametrize("rule", LAB_RULES, ids=lambda rule: rule.name)
def test_what_two_siblings_emit_agrees_with_the_law_that_weighs_every_list(rule, drawing):
    found = sibling_rounds(rule_text(rule, {"typical_epsilon": 0.4}), P, Q, 2, drawing, rounds=400, seed=5)
    assert found.outside == 0 and found.accepted.inside, found
    assert sum(share.exact or 0.0 for share in found.law) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("drawing", DRAWINGS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_lossless_siblings_emit_the_target_however_they_are_drawn(drawing, count):
    law = exact_law(
        token_rule(parse_rule("lossless")),
        P64,
        Q64,
        count,
        drawing,
    )
    assert law is not None and law.tolist() == pytest.approx(P, abs=1e-6)


def test_two_deterministic_siblings_of_a_cascade_emit_the_first_one_inside_the_set():
    rule = token_rule(parse_rule("spec_cascade:0.5,redraw=target"))
    law = exact_law(rule, P64, Q64, 2, "deterministic")
    assert law is not None and law.tolist() == [1.0, 0.0, 0.0]


def test_one_sibling_drawn_from_q_is_the_induced_law():
    for text in TEXTS:
        rule = token_rule(parse_rule(text))
        law = exact_law(rule, P64, Q64, 1, "with_replacement")
        assert law is not None and law.tolist() == pytest.approx(induced(rule, P64, Q64).tolist(), abs=1e-6), text


def test_a_drawing_of_another_rule_falls_outside_the_band():
    """The check can fail: lenience's draws against the lossless law."""
    found = chain_rounds("lenience:0.5", P, Q, gamma=1, rounds=1200, seed=1)
    assert sum(not share.low <= value <= share.high for share, value in zip(found.law, P, strict=True)) >= 2


def test_tokens_per_round_of_a_chain_is_the_articles_formula_and_a_block_keeps_more():
    chain = chain_rounds("lossless", P, Q, gamma=4, rounds=2000, seed=2).tokens_per_round
    block = chain_rounds("block", P, Q, gamma=3, rounds=2000, seed=2).tokens_per_round
    assert chain is not None and chain.exact == pytest.approx(3.3616) and chain.inside
    assert block is not None and block.exact == pytest.approx(1 + 2.022) and block.inside


def test_the_same_seed_draws_the_same_rounds():
    assert chain_rounds("lenience:0.5", P, Q, 2, 200, 3) == chain_rounds("lenience:0.5", P, Q, 2, 200, 3)
    assert chain_rounds("lenience:0.5", P, Q, 2, 200, 3) != chain_rounds("lenience:0.5", P, Q, 2, 200, 4)


def test_too_many_lists_leave_the_drawing_without_an_exact_law():
    pair = of_preset("heavy_tailed")
    found = sibling_rounds("lossless", pair.p, pair.q, 4, "with_replacement", rounds=20, seed=0)
    assert found.outside is None and found.accepted.exact is None
    block = chain_rounds("block", pair.p, pair.q, gamma=4, rounds=20, seed=0)
    assert block.tokens_per_round is not None and block.tokens_per_round.exact is None


@pytest.mark.parametrize(
    ("rounds", "count", "says"), [(0, 2, "0 rounds"), (10**6, 2, "rounds"), (10, 0, "0 candidates")]
)
def test_a_drawing_without_rounds_or_candidates_is_refused(rounds, count, says):
    with pytest.raises(BadInput, match=says):
        chain_rounds("lossless", P, Q, count, rounds, 0)
    with pytest.raises(BadInput, match=says):
        sibling_rounds("lossless", P, Q, count, "deterministic", rounds, 0)


def test_a_band_is_wilsons_and_wider_when_several_hold_together():
    assert wilson(15, 50) == pytest.approx((0.19104, 0.43750), abs=5e-5)
    assert wilson(0, 50)[0] == 0.0 and wilson(50, 50)[1] == 1.0
    low, high = wilson(15, 50, together=3)
    assert low < 0.19104 and high > 0.43750
    for count, samples in ((-1, 10), (11, 10), (0, 0)):
        with pytest.raises(BadInput, match="is no observation"):
            wilson(count, samples)


# -- the article's round --------------------------------------------------------------------------------------------


def test_the_articles_round_rejects_c_and_replaces_it_with_b():
    found = replay(ARTICLE, ["A", "C", "B"], [0.7, 0.9, 0.2], 0.2)
    assert found.emitted == ("A", "B") and found.discarded == ("C", "B") and found.source == "correction"
    assert [step.fate for step in found.steps] == ["accepted", "rejected", "unreached"]
    assert [step.threshold for step in found.steps[:2]] == pytest.approx([0.8333, 0.6667], abs=5e-5)
    assert found.steps[2].threshold is None
    assert found.law.accepted == pytest.approx((0.5, 0.1, 0.2)) and found.law.residual == pytest.approx((0, 1, 0))
    assert found.law.induced == pytest.approx(P) and found.law.mass == pytest.approx(0.8)


def test_a_wholly_accepted_draft_adds_a_bonus_from_the_target():
    found = replay(ARTICLE, ["A", "B"], [0.7, 0.99], 0.6)
    assert found.emitted == ("A", "B", "B") and found.source == "bonus" and found.discarded == ()


@pytest.mark.parametrize(
    ("draft", "draws", "final", "says"),
    [
        ([], [], 0.2, "The draft is empty"),
        (["D"], [0.1], 0.2, "'D' is not in the vocabulary"),
        (["A"], [0.1, 0.2], 0.2, "1 candidates need 1 draws, not 2"),
        (["A"], [1.0], 0.2, "outside 0 ≤ u < 1"),
        (["A"], [0.1], float("nan"), "outside 0 ≤ u < 1"),
    ],
)
def test_a_round_that_can_not_be_replayed_is_refused(draft, draws, final, says):
    with pytest.raises(BadInput, match=says):
        replay(ARTICLE, draft, draws, final)


def test_a_candidate_that_the_draft_never_proposes_is_refused():
    with pytest.raises(BadInput, match=r"q\(B\) is 0"):
        replay(lab_pair("AB", [0.5, 0.5], [1.0, 0.0]), ["B"], [0.1], 0.2)
