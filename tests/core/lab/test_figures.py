"""The paper's figures and tables as data, against computations in plain numpy that know no rule object."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from core.errors import BadInput
from core.grammar import rule_text
from core.lab.ablations import ceiling_rule_is_lenience, table1, table6
from core.lab.alignment import figure4, simulated_pair
from core.lab.figure_notes import NOTES
from core.lab.figures import candidate_sets, divergences, figure2, figure8a, figure8b, lemma1_rows
from core.rules.catalogue import ENTROPIES, FACTORS, LAB_RULES, THRESHOLDS

P, Q = np.array([0.2, 0.5, 0.3]), np.array([0.3, 0.6, 0.1])
"""The article's pair, out of order, so that sorting shows."""

ALIGNED, MIXED = (0.8, 0.15, 0.05), (0.2, 0.5, 0.3)


def min_p(p, base):
    return p >= base * p.max()


def eta(p, epsilon):
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    return p >= min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))


def test_figure_2_sorts_by_the_target_and_shows_what_each_rule_emits():
    found = figure2(P, Q, (("a", "cos_we:0.5"), ("b", "lenience:0.8"), ("c", "spec_cascade:0.5,redraw=draft_in_set")))
    assert found.order == (1, 2, 0)
    assert found.p == pytest.approx((0.5, 0.3, 0.2)) and found.q == pytest.approx((0.6, 0.1, 0.3))
    assert found.overlap == pytest.approx((0.5, 0.1, 0.2))
    mixture, lenience, cascade = found.panels
    assert mixture.law == pytest.approx((0.55, 0.2, 0.25)) and mixture.ceiling is None
    assert lenience.law == pytest.approx((0.6, 0.15, 0.25)) and lenience.ceiling == pytest.approx((0.625, 0.375, 0.25))
    assert cascade.law == pytest.approx((6 / 7, 1 / 7, 0)) and cascade.inside == (True, True, False)
    assert cascade.mass == pytest.approx(0.7)


@pytest.mark.parametrize(("kind", "grid", "allowed"), [("min_p", THRESHOLDS, min_p), ("eta", ENTROPIES, eta)])
def test_figure_4_is_the_mean_change_of_acceptance_over_its_pairs(kind, grid, allowed):
    found = figure4(kind, grid, (ALIGNED, MIXED), pairs=12, seed=5)
    for number, curve in enumerate(found.curves):
        drawn = [simulated_pair(curve.alignment, np.random.default_rng([5, number, one]), 2.0) for one in range(12)]
        for place, value in enumerate(grid):
            changes = []
            for p, q in ((p.numpy(), q.numpy()) for p, q in drawn):
                kept = p * allowed(p, value)
                changes.append(np.minimum(kept / kept.sum(), q).sum() - np.minimum(p, q).sum())
            assert curve.mean[place] == pytest.approx(np.mean(changes), abs=1e-9)
            assert curve.sd[place] == pytest.approx(np.std(changes, ddof=1), abs=1e-9)
            assert curve.positive[place] == np.mean(np.array(changes) > 0)
            assert curve.gain[place] - curve.loss[place] == pytest.approx(curve.mean[place], abs=1e-9)
    assert len(found.curves[0].band) == 2 * len(grid)


def test_figure_4_needs_a_draft_that_is_sharper_than_the_target():
    equal = figure4("eta", ENTROPIES, (ALIGNED, MIXED), pairs=40, sharpness=1.0)
    sharp = figure4("eta", ENTROPIES, (ALIGNED, MIXED), pairs=40, sharpness=2.5)
    assert all(mean < 0 for curve in equal.curves for mean in curve.mean)
    assert all(mean > 0 for curve in sharp.curves for mean in curve.mean)
    aligned = sharp.curves[0].mean
    assert all(later > sooner for sooner, later in pairwise(aligned))
    narrow = figure4("min_p", THRESHOLDS, (ALIGNED,), pairs=40, sharpness=2.5).curves[0].mean
    assert max(narrow) > narrow[-1] and narrow.index(max(narrow)) < len(narrow) - 1


def test_the_same_seed_simulates_the_same_pairs():
    again = [simulated_pair(ALIGNED, np.random.default_rng([1, 2]), 2.0) for _ in range(2)]
    assert again[0][0].tolist() == again[1][0].tolist() and again[0][1].tolist() == again[1][1].tolist()
    p, q = simulated_pair((1.0, 0.0, 0.0), np.random.default_rng(0), 1.0)
    assert p.tolist() == pytest.approx(q.tolist())


def test_a_simulation_that_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="no standard deviation"):
        figure4("min_p", (0.5,), pairs=1)
    with pytest.raises(BadInput, match="no shares that sum to 1"):
        figure4("min_p", (0.5,), ((0.5, 0.5, 0.5),), pairs=2)
    with pytest.raises(BadInput, match="sharpness is 0"):
        figure4("min_p", (0.5,), pairs=2, sharpness=0.0)


def test_figure_8a_is_equation_11_along_the_line_and_0_until_a_token_passes_its_ceiling():
    p, q = np.array([0.38, 0.26, 0.16, 0.10, 0.06, 0.04]), np.array([0.12, 0.30, 0.05, 0.08, 0.25, 0.20])
    found = figure8a(p, q, FACTORS, points=41)
    for curve in found.curves:
        for place in range(41):
            drafted = p + place / 40 * (q - p)
            distance = np.abs(drafted - p).sum() / 2
            assert found.tv[place] == pytest.approx(distance)
            if not place:
                assert curve.delta[0] is None
                continue
            excess = np.abs(drafted - p / curve.ell).sum() / 2 + 0.5 - 0.5 / curve.ell
            assert curve.delta[place] == pytest.approx(excess / distance, abs=1e-9)
            if (drafted <= p / curve.ell).all():
                assert curve.delta[place] == 0.0
        known = [value for value in curve.delta if value is not None]
        assert known == sorted(known)
    with pytest.raises(BadInput, match="p and q are equal"):
        figure8a(p, p, FACTORS)


def test_figure_8b_the_ceiling_clips_the_mixture_only_past_their_crossing():
    found = figure8b(0.2, 0.5)
    assert (found.ceiling_at, found.crossing) == pytest.approx((0.4, 0.6))
    for q, mixture, ceiling, ablation in zip(found.q, found.mixture, found.ceiling, found.ablation, strict=True):
        assert mixture == pytest.approx(0.5 * 0.2 + 0.5 * q)
        assert ceiling == pytest.approx(min(q, 0.4))
        assert ablation == pytest.approx(mixture if q <= 0.4 else 0.4)
        if abs(q - 0.6) > 1e-9 and q > 0.2 + 1e-9:
            assert (ceiling > mixture) == (q < 0.6)
    before = max(one for q, one in zip(found.q, found.ablation, strict=True) if q <= 0.4)
    assert 0.4 - before == pytest.approx(0.2 * (1 - 0.5))
    for p, ell in ((0.0, 0.5), (0.5, 0.0), (float("nan"), 0.5), (0.5, 1.5)):
        with pytest.raises(BadInput, match="both lie above 0"):
            figure8b(p, ell)


def test_the_divergence_of_standard_decoding_falls_to_0_and_that_of_eagle_keeps_its_floor():
    p, q = np.array([0.38, 0.26, 0.16, 0.20]), np.array([0.12, 0.30, 0.38, 0.20])
    found = divergences(p, q, "spec_cascade:0.5", topk=4, points=21)
    inside = min_p(p, 0.5)
    kept = p * inside / (p * inside).sum()
    assert found.allowed == 3 and found.floor == pytest.approx(-math.log(kept.max()))
    for place in range(21):
        drafted = p + place / 20 * (q - p)
        ours = drafted * inside / (drafted * inside).sum()
        expected = sum(a * math.log(a / b) for a, b in zip(ours, kept, strict=True) if a > 0)
        assert found.kl_sd[place] == pytest.approx(expected, abs=1e-9)
        first = next(token for token in np.argsort(-drafted, kind="stable") if inside[token])
        assert found.kl_eagle[place] == pytest.approx(-math.log(kept[first]), abs=1e-9)
        assert (found.kl_eagle[place] or 0) >= found.floor - 1e-12
    assert found.kl_sd[0] == 0.0 and found.kl_eagle[0] == pytest.approx(found.floor)
    assert found.kl_eagle[-1] != found.kl_eagle[0]  # the draft's order changed on the way


def test_where_no_candidate_of_the_tree_is_allowed_eagle_has_no_divergence():
    p, q = np.array([0.5, 0.4, 0.06, 0.04]), np.array([0.05, 0.05, 0.5, 0.4])
    found = divergences(p, q, "spec_cascade:0.5", topk=2, points=3)
    assert found.kl_eagle[0] is not None and found.kl_eagle[-1] is None
    with pytest.raises(BadInput, match="has no allowed set"):
        divergences(p, q, "lossless")


def test_lemma_1_at_the_papers_thresholds_is_the_direct_difference_and_not_what_is_printed():
    p, q = (0.5, 0.3, 0.2), (0.6, 0.1, 0.3)
    rows = {row.p_base: row for row in lemma1_rows(p, q, THRESHOLDS)}
    half = rows[0.5]
    assert (half.effect.gain, half.effect.loss, half.effect.change) == pytest.approx((0.1, 0.2, -0.1))
    assert half.printed == pytest.approx(0.1 - 2 * 0.2)
    assert all(row.effect.change == pytest.approx(row.effect.direct) for row in rows.values())


def test_a_cascade_accepts_a_set_of_candidates_at_least_as_often_as_the_lossless_rule():
    p, q = (0.5, 0.3, 0.2), (0.1, 0.6, 0.3)
    one, two, three = candidate_sets(p, q, "spec_cascade:0.5", depth=2)
    assert (one.candidates, two.candidates) == ((1,), (1, 2))
    assert (one.lossless, one.spec_cascade) == pytest.approx((0.375, 1.0))
    assert two.lossless == pytest.approx(0.375) and three.lossless == pytest.approx(1.0)
    assert (one.lossless_efficiency, one.cascade_efficiency) == pytest.approx((0.375 + 0.375**2, 2.0))


def test_table_1s_rows_are_the_formulas_renormalised_and_say_what_they_sum_to():
    rows = {row.label: row for row in table1(P, Q, FACTORS)}
    assert rows["Lossless"].mass == pytest.approx(0.8) and rows["Lossless"].tv == pytest.approx(0.0)
    for place, lam in enumerate(FACTORS):
        delta = np.maximum(Q - P / lam, 0).sum() / np.maximum(Q - P, 0).sum()
        mixture = lam * P + (1 - lam) * Q
        adaptive = np.where(Q <= P, Q + delta * (P - Q), mixture)
        ceiling = np.where(P / lam >= Q, mixture, P / lam)
        for label, printed in (("Adaptive interpolation", adaptive), ("Overshoot ceiling", ceiling)):
            row = rows[label]
            assert row.raw_sum is not None and row.raw_sum[place] == pytest.approx(printed.sum())
            assert row.each[place].induced == pytest.approx(tuple(printed / printed.sum()), abs=1e-9)
        assert rows["CoS, mixture"].each[place].induced == pytest.approx(tuple(mixture), abs=1e-9)
    assert rows["Overshoot ceiling"].raw_sum == pytest.approx((1, 1, 1, 1.03))
    assert rows["Lenience"].tv == pytest.approx(np.mean([one.tv for one in rows["Lenience"].each]))


def test_table_6s_hybrid_takes_the_draft_inside_the_set_and_the_ceiling_outside():
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.3, 0.1, 0.2, 0.4])
    hybrid = {row.label: row for row in table6(p, q, FACTORS)}["Min-p with ceiling"]
    for ell, one in zip(FACTORS, hybrid.each, strict=True):
        y = np.where(min_p(p, 0.5), q, np.minimum(q, p / ell))
        left = np.maximum(p - y, 0)
        assert one.induced == pytest.approx(tuple(y + (1 - y.sum()) * left / left.sum()), abs=1e-9)
        assert one.mass == pytest.approx(y.sum())
    over = [np.maximum(np.array(one.induced) - p, 0)[q > p].sum() for one in hybrid.each]
    assert hybrid.overshoot_kept == pytest.approx(np.mean(over))


def test_a_ceiling_coded_as_a_rule_of_its_own_is_lenience():
    random = np.random.default_rng(3)
    for _ in range(200):
        p, q = random.dirichlet(np.ones(6), 2)
        assert ceiling_rule_is_lenience(p, q, 0.4) < 1e-12


def test_every_figure_has_its_notes_and_every_rule_a_grammar_text_within_its_range():
    assert all(notes.equation and notes.assumes and notes.differs for notes in NOTES.values())
    for rule in LAB_RULES:
        swept, parameter = rule.swept(), rule.sweep
        assert (parameter is None) == (not swept)
        if parameter is not None:
            assert len({rule_text(rule, {parameter.name: value}) for value in swept}) == len(swept)
