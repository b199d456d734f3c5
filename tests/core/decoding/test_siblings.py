"""What is formed once a position, and what is formed again after a rejection."""

from __future__ import annotations

import torch

from core.decoding.siblings import siblings
from core.grammar import parse_rule
from core.rules.table import token_rule
from core.rules.truncation import TruncationRule
from core.sampling.probability import without

P = torch.tensor([0.4, 0.3, 0.2, 0.1])
Q = torch.tensor([0.25, 0.25, 0.25, 0.25])


def test_a_threshold_that_is_recomputed_is_that_of_what_is_left_of_p() -> None:
    rule = token_rule(parse_rule("typical:0.9,hard=false,recompute=true"))
    assert isinstance(rule, TruncationRule)
    left = without(P, 0)
    again, once = (rule.test(left, rule.allowed(one), rule.threshold(one)) for one in (left, P))
    assert not torch.allclose(again, once)  # else this test would say nothing
    walk = siblings(rule, P, Q, alone=False)
    walk.reject(0, Q)
    assert torch.equal(walk.accepts(Q), again)


def test_a_threshold_that_is_not_recomputed_stays_that_of_p() -> None:
    rule = token_rule(parse_rule("typical:0.9,hard=false"))
    assert isinstance(rule, TruncationRule)
    walk = siblings(rule, P, Q, alone=False)
    walk.reject(0, Q)
    assert torch.equal(walk.accepts(Q), rule.test(without(P, 0), rule.allowed(P), rule.threshold(P)))


def test_the_set_of_a_ceiling_is_that_of_the_positions_p_for_every_sibling() -> None:
    rule = token_rule(parse_rule("min_p_ceiling:0.6,ell=0.5"))
    p, q = torch.tensor([0.5, 0.28, 0.12, 0.1]), torch.tensor([0.5, 0.1, 0.3, 0.1])
    walk = siblings(rule, p, q, alone=False)
    walk.reject(2, q)
    left = walk.redraw(q)
    fixed, formed_again = (rule.at(one).accept(left, q) for one in (p, left))
    assert not torch.allclose(fixed, formed_again)  # else this test would say nothing
    assert torch.equal(walk.accepts(q), fixed)
