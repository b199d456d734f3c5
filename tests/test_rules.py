"""The token rules against the vectors of rules.md (p = (.5, .3, .2), q = (.6, .1, .3)) and their laws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.grammar import parse_rule
from core.rules import acceptance_mass, induced, token_rule, without

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64)

IN_SET = ((1, 1, 0), 0.7, (0.625, 0.375, 0), (0.7875, 0.2125, 0), 0.2875, 0.28445)

VECTORS = [
    # rule, accept, mass, residual, induced, TV to p, KL(P‖p)
    ("lossless", (0.833333, 1, 0.666667), 0.8, (0, 1, 0), (0.5, 0.3, 0.2), 0.0, 0.0),
    ("block", (0.833333, 1, 0.666667), 0.8, (0, 1, 0), (0.5, 0.3, 0.2), 0.0, 0.0),
    ("lenience:0.5", (1, 1, 1), 1.0, (0, 1, 0), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("lenience:0.8", (1, 1, 0.833333), 0.95, (0, 1, 0), (0.6, 0.15, 0.25), 0.15, 0.06121),
    ("lenience:0.95", (0.877193, 1, 0.701754), 0.836842, (0, 1, 0), (0.526316, 0.263158, 0.210526), 0.0368, None),
    ("cos_we:0.5", (0.916667, 1, 0.833333), 0.9, (0, 1, 0), (0.55, 0.2, 0.25), 0.1, 0.02711),
    ("cos_we:0.2", (0.866667, 1, 0.733333), 0.84, (0, 1, 0), (0.52, 0.26, 0.22), 0.04, 0.00416),
    ("cos_cd:0.5", (0.54908, 1, 0.621213), 0.615812, (0, 1, 0), (0.329448, 0.484188, 0.186364), 0.1842, 0.08117),
    (
        "spec_cascade:0.5,redraw=draft_in_set",
        (1, 1, 0),
        0.7,
        (0.857143, 0.142857, 0),
        (0.857143, 0.142857, 0),
        0.3571,
        0.35601,
    ),
    ("spec_cascade:0.5,redraw=target", (1, 1, 0), 0.7, (0.5, 0.3, 0.2), (0.75, 0.19, 0.06), 0.25, 0.14508),
    ("spec_cascade:0.5,redraw=target_in_set", *IN_SET),
    ("typical:0.4,redraw=target_in_set", *IN_SET),
    (
        "typical:0.4,hard=false,redraw=target",
        (1, 1, 0.885467),
        0.96564,
        (0.5, 0.3, 0.2),
        (0.61718, 0.110308, 0.272512),
        0.1897,
        None,
    ),
    ("typical:0.3,redraw=target", (1, 1, 1), 1.0, (0.5, 0.3, 0.2), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("typical:0.3,redraw=target_in_set", (1, 1, 1), 1.0, (0.5, 0.3, 0.2), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("typical:0.3,redraw=draft_in_set", (1, 1, 1), 1.0, (0.6, 0.1, 0.3), (0.6, 0.1, 0.3), 0.2, 0.12117),
    ("truncation:top_k=2,redraw=target_in_set", *IN_SET),
    (
        "overshoot_ceiling:0.8",
        (0.841424, 1, 0.809061),
        0.847573,
        (0, 1, 0),
        (0.504854, 0.252427, 0.242718),
        0.0476,
        None,
    ),
    (
        "adaptive_interpolation:0.5",
        (1, 1, 0.925926),
        0.977778,
        (0.5, 0.5, 0),
        (0.611111, 0.111111, 0.277778),
        0.1889,
        0.10352,
    ),
    (
        "min_p_ceiling:0.9,ell=0.95",
        (1, 1, 0.701754),
        0.910526,
        (0, 1, 0),
        (0.6, 0.189474, 0.210526),
        0.1105,
        None,
    ),
]


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
