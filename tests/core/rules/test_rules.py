"""The token rules against the vectors of rules.md (p = (.5, .3, .2), q = (.6, .1, .3)) and their laws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core.grammar import parse_allowed, parse_rule
from core.rules.table import acceptance_mass, induced, token_rule
from core.rules.target_law import TargetLawRule, delta
from core.rules.truncation import TruncationRule
from core.sampling.allowed import allowed_by, allowed_set, entropy_threshold
from core.sampling.probability import without
from core.types import AllowedSet, CosCD, CosWE, Typical
from tests.helpers.rule_texts import RULES, VECTORS

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64)


def tv(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().sum()) / 2


def kl(a: Tensor, b: Tensor) -> float:
    inside = a > 0
    return float((a[inside] * (a[inside] / b[inside]).log()).sum())


@pytest.mark.parametrize(
    ("text", "accept", "mass", "residual", "law", "distance", "divergence"), VECTORS, ids=lambda value: str(value)[:40]
)
def test_every_rule_has_the_vectors_of_the_specification(text, accept, mass, residual, law, distance, divergence):
    rule = token_rule(parse_rule(text))
    assert rule.accept(P, Q).tolist() == pytest.approx(accept, abs=1e-6)
    assert acceptance_mass(rule, P, Q) == pytest.approx(mass, abs=1e-6)
    assert rule.residual(P, Q).tolist() == pytest.approx(residual, abs=1e-6)
    assert induced(rule, P, Q).tolist() == pytest.approx(law, abs=1e-6)
    assert tv(induced(rule, P, Q), P) == pytest.approx(distance, abs=5e-5)
    if divergence is not None:
        assert kl(induced(rule, P, Q), P) == pytest.approx(divergence, abs=5e-6)


def test_a_residual_without_mass_is_p():
    assert token_rule(parse_rule("lossless")).residual(P, P).tolist() == pytest.approx(P.tolist())


def test_a_token_that_the_target_never_emits_is_never_accepted():
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])
    for text in ("lossless", "lenience:0.1", "spec_cascade:0.5"):
        assert float(token_rule(parse_rule(text)).accept(p, q)[1]) == 0.0


def test_draft_in_set_falls_back_to_the_target_when_the_draft_has_no_mass_on_the_allowed_set():
    rule = token_rule(parse_rule("spec_cascade:0.5,redraw=draft_in_set"))
    q = torch.tensor([0.0, 0.0, 1.0])
    assert rule.residual(P, q).tolist() == pytest.approx([0.625, 0.375, 0])


def test_bonus_comes_from_the_allowed_set_only_for_in_set_redraws():
    assert token_rule(parse_rule("spec_cascade:0.5,redraw=target")).bonus(P).tolist() == pytest.approx(P.tolist())
    for redraw in ("target_in_set", "draft_in_set"):
        rule = token_rule(parse_rule(f"spec_cascade:0.5,redraw={redraw}"))
        assert rule.bonus(P).tolist() == pytest.approx([0.625, 0.375, 0])


def test_zeroing_the_only_token_with_mass_leaves_the_distribution_as_it_is():
    assert without(torch.tensor([0.0, 1.0]), 1).tolist() == [0.0, 1.0]


@st.composite
def distributions(draw, size=5):
    weights = draw(st.lists(st.integers(0, 20), min_size=size, max_size=size).filter(any))
    return torch.tensor(weights, dtype=torch.float64) / sum(weights)


@given(distributions(), distributions())
def test_lossless_emits_p_whatever_the_draft(p, q):
    assert induced(token_rule(parse_rule("lossless")), p, q).tolist() == pytest.approx(p.tolist(), abs=1e-9)


@given(distributions(), distributions(), st.floats(0.05, 1.0))
def test_lenience_emits_the_law_of_equations_10_and_11(p, q, ell):
    law = induced(token_rule(parse_rule(f"lenience:{ell!r}")), p, q)
    distance = tv(p, q)
    if distance == 0.0:
        assert law.tolist() == pytest.approx(p.tolist(), abs=1e-9)
        return
    delta = (0.5 * float((q - p / ell).abs().sum()) + 0.5 - 0.5 / ell) / distance
    expected = torch.where(q <= p, delta * p + (1 - delta) * q, torch.minimum(q, p / ell))
    assert law.tolist() == pytest.approx(expected.tolist(), abs=1e-9)


@given(distributions(), distributions(), st.sampled_from(["draft_in_set", "target", "target_in_set"]))
def test_spec_cascade_emits_the_mixture_that_its_redraw_names(p, q, redraw):
    rule = token_rule(parse_rule(f"spec_cascade:0.5,redraw={redraw}"))
    allowed = (p >= 0.5 * p.max()).double()
    z = float((q * allowed).sum())
    p_allowed = p * allowed / (p * allowed).sum()
    sources = {"target": p, "target_in_set": p_allowed, "draft_in_set": q * allowed / z if z > 0 else p_allowed}
    expected = q * allowed + (1 - z) * sources[redraw]
    assert induced(rule, p, q).tolist() == pytest.approx(expected.tolist(), abs=1e-9)


# -- thousands of random pairs --------------------------------------------------------------------------------------

RULE_TEXTS = (*RULES, "block")
many = settings(max_examples=300, deadline=None)


@many
@given(distributions(), distributions(), st.floats(0.0, 1.0))
def test_a_weighted_ensemble_emits_the_mixture_of_equation_8(p, q, weight):
    law = induced(token_rule(parse_rule(f"cos_we:{weight!r}")), p, q)
    assert law.tolist() == pytest.approx(((1 - weight) * p + weight * q).tolist(), abs=1e-9)


@many
@given(distributions(), distributions(), st.sampled_from(RULE_TEXTS))
def test_every_rule_accepts_between_0_and_1_and_emits_a_distribution(p, q, text):
    rule = token_rule(parse_rule(text))
    accept, residual, law = rule.accept(p, q), rule.residual(p, q), induced(rule, p, q)
    assert bool(((accept >= 0.0) & (accept <= 1.0)).all())
    for vector in (residual, law):
        assert bool((vector >= -1e-12).all())
        assert float(vector.sum()) == pytest.approx(1.0, abs=1e-9)
    assert 0.0 <= acceptance_mass(rule, p, q) <= 1.0 + 1e-9


@many
@given(distributions(), distributions(), st.sampled_from([t for t in RULE_TEXTS if "hard=false" not in t]))
def test_nothing_is_accepted_where_neither_p_nor_a_law_of_the_rule_has_mass(p, q, text):
    rule = token_rule(parse_rule(text))
    wanted = rule.law(p, q) if isinstance(rule, TargetLawRule) else p
    assert bool((rule.accept(p, q)[wanted <= 0.0] == 0.0).all())


@many
@given(distributions(), st.sampled_from([t for t in RULE_TEXTS if "cd:" not in t]))
def test_a_draft_that_is_the_target_passes_everything_inside_the_rules_set(p, text):
    """p = q: every mixture is p; truncation rules still cut what lies outside A."""
    rule = token_rule(parse_rule(text))
    if isinstance(rule, TruncationRule):
        if "hard=false" not in text:
            assert bool((rule.accept(p, p).bool() == rule.allowed(p)).all())
        return
    assert acceptance_mass(rule, p, p) == pytest.approx(1.0, abs=1e-9)
    assert induced(rule, p, p).tolist() == pytest.approx(p.tolist(), abs=1e-9)


@pytest.mark.parametrize("text", RULE_TEXTS)
def test_disjoint_supports_are_rejected_and_redrawn_from_the_target(text):
    """The mixtures alone give the draft's token the probability that they promise it."""
    p, q = torch.tensor([0.75, 0.25, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    rule = token_rule(parse_rule(text))
    law = induced(rule, p, q)
    assert float(law.sum()) == pytest.approx(1.0)
    if not isinstance(rule, TargetLawRule) or text.startswith("cos_cd"):
        assert float(rule.accept(p, q)[2]) == 0.0
        assert float(law[2]) == 0.0
    if text.startswith("cos_cd"):
        assert law.tolist() == p.tolist()


@pytest.mark.parametrize("text", ["typical:1e-50,hard=false", "typical:0.3,delta=1e-50,hard=false"])
def test_a_threshold_that_underflows_accepts_all_that_the_target_can_emit_and_nothing_else(text):
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.3, 0.3, 0.4])
    rule = token_rule(parse_rule(text))
    assert rule.accept(p, q).tolist() == [1.0, 1.0, 0.0]
    assert induced(rule, p, q).sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("text", RULE_TEXTS)
def test_probabilities_that_underflow_make_no_nan(text):
    tiny = 1e-44
    p, q = torch.tensor([1.0, tiny, 0.0, tiny]), torch.tensor([tiny, 1.0, tiny, 0.0])
    rule = token_rule(parse_rule(text))
    for vector in (rule.accept(p, q), rule.residual(p, q), induced(rule, p, q), rule.bonus(p)):
        assert bool(torch.isfinite(vector).all())
    assert float(rule.residual(p, q).sum()) == pytest.approx(1.0)


def test_contrasting_keeps_ratios_whose_power_underflows():
    """q^μ is 1e-60 and 1e-80 in float32 arithmetic: zero both, while their ratio is 1e20."""
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([1e-15, 1e-20])
    law = TargetLawRule(CosCD(mu=4.0)).law(p, q)
    assert law.tolist() == pytest.approx([1e-20, 1.0])


def test_a_contrast_without_a_common_token_is_the_target_and_says_so():
    rule = TargetLawRule(CosCD(mu=0.5))
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert rule.falls_back(p, q) is True
    assert rule.falls_back(P, Q) is False
    assert TargetLawRule(CosWE(draft_weight=0.5)).falls_back(p, q) is False


@pytest.mark.parametrize(
    ("p", "q", "ell"), [(P, Q, 0.8), (P, Q, 0.5), (Q, P, 0.3), (P, torch.tensor([0.0, 0.0, 1.0]).double(), 0.6)]
)
def test_delta_is_that_of_equation_11(p, q, ell):
    printed = (0.5 * (q - p / ell).abs().sum() + 0.5 - 0.5 / ell) / (0.5 * (q - p).abs().sum())
    assert delta(p, q, ell) == pytest.approx(float(printed), abs=1e-9)


def test_delta_of_equal_distributions_is_undefined():
    assert delta(P, P, 0.5) is None


def test_the_raw_ceiling_of_the_paper_sums_to_1_03():
    """So the printed formula is no law, and is renormalised (rules.md §1)."""
    mixture = torch.where(Q <= P / 0.8, 0.8 * P + 0.2 * Q, P / 0.8)
    assert float(mixture.sum()) == pytest.approx(1.03)


@many
@given(distributions(), distributions(), st.floats(0.05, 1.0))
def test_a_ceiling_coded_as_the_paper_words_it_is_lenience(p, q, ell):
    """accept min(q, p/ℓ)/q and residual (p − min(q, p/ℓ))₊: the finding of rules.md §1."""
    lenience = token_rule(parse_rule(f"lenience:{ell!r}"))
    capped = torch.minimum(q, p / ell)
    left = (p - capped).clamp_min(0.0)
    accepted = capped
    residual = left / left.sum() if float(left.sum()) > 0.0 else p
    law = accepted + (1.0 - accepted.sum()) * residual
    assert induced(lenience, p, q).tolist() == pytest.approx(law.tolist(), abs=1e-9)


# -- allowed sets ---------------------------------------------------------------------------------------------------

WARPERS = {
    "top_k=2": TopKLogitsWarper(2),
    "top_p=0.7": TopPLogitsWarper(0.7),
    "min_p=0.3": MinPLogitsWarper(0.3),
    "epsilon=0.13": EpsilonLogitsWarper(0.13),
    "eta=0.2": EtaLogitsWarper(0.2),
}


@pytest.mark.parametrize("text", WARPERS)
def test_allowed_sets_are_those_of_the_librarys_processors(text):
    generator = torch.Generator().manual_seed(5)
    for _ in range(200):
        p = torch.softmax(3 * torch.randn(9, generator=generator), dim=-1)
        left = WARPERS[text](torch.empty((1, 0), dtype=torch.long), p.log()[None])[0]
        assert allowed_set(parse_allowed(text)[0], p).tolist() == torch.isfinite(left).tolist()


def test_several_truncations_apply_one_after_the_other_in_the_librarys_order():
    generator = torch.Generator().manual_seed(6)
    order = [WARPERS[text] for text in ("top_k=2", "min_p=0.3", "eta=0.2")]
    for _ in range(200):
        p = torch.softmax(3 * torch.randn(9, generator=generator), dim=-1)
        left = p.log()[None]
        for warper in order:
            left = warper(torch.empty((1, 0), dtype=torch.long), left)
        assert allowed_set(AllowedSet(eta=0.2, min_p=0.3, top_k=2), p).tolist() == torch.isfinite(left[0]).tolist()


@many
@given(distributions(), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_typical_acceptance_is_the_eta_set_with_epsilon_and_delta_and_holds_the_most_probable(p, epsilon, factor):
    entropy = -sum(float(x) * math.log(float(x)) for x in p if float(x) > 0.0)
    tau = min(epsilon, factor * math.exp(-entropy))
    allowed = allowed_by(Typical(epsilon=epsilon, delta=factor), p)
    clear = (p - tau).abs() > 1e-9
    assert (allowed == ((p >= tau) & (p > 0)))[clear].all()
    assert bool(allowed[p == p.max()].all())
    assert allowed.tolist() == allowed_set(AllowedSet(eta=epsilon, delta=factor), p).tolist()


def test_the_typical_threshold_of_a_uniform_vocabulary():
    p = torch.full((100,), 0.01)
    assert entropy_threshold(p, 0.3, math.sqrt(0.3)) == pytest.approx(0.005477, abs=1e-6)


def test_not_a_number_is_in_no_set_and_never_accepted():
    """The engine ends a run at a NaN row before any rule sees it; here the comparison itself is safe."""
    p = torch.tensor([0.5, float("nan"), 0.5])
    for text in ("spec_cascade:0.5", "typical:0.3", "truncation:epsilon=0.1"):
        assert float(token_rule(parse_rule(text)).accept(p, Q.float())[1]) == 0.0
