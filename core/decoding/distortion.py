"""What a rule really emits at one position of a walk, and how far that is from the law it is judged by (metrics.md).

The induced law counts every way a token can come out there: accepted as any of the position's candidates, or redrawn
after all were rejected. Accept vectors and redraws are the very float32 tensors of the walk; they are put together in
float64. The lossless rule is measured like any other: its distortion is what rounding leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.decoding.position import RuledPosition
from core.drafting.draft import Draft
from core.records import Distortion
from core.rules.token_rule import TokenRule
from core.rules.truncation import TruncationRule
from core.sampling.probability import normalised

LEAST = 1e-300
"""Stands in for 0 where a term 0·log 0 would be NaN."""


@dataclass(frozen=True, slots=True)
class InducedLaw:
    """``law`` [V] is what a position emits, ``residual`` [V] what it draws from when all candidates are rejected.

    ``conditional``: the law is the one given the tokens drafted there; other siblings would have another.
    """

    law: Tensor
    residual: Tensor
    conditional: bool


def induced_law(draft: Draft, candidates: list[int], position: RuledPosition) -> InducedLaw:
    """The law of a position whose ``candidates`` are tested in this order, none left out.

    A deterministic candidate is one token, so it adds reach × accept there. A sampled one is averaged over its q: exact
    for one candidate, and for several drawn with replacement unless the rule zeroes the very token that it rejected;
    otherwise, and without replacement, it is the law given that the drafted tokens are those tried and rejected.
    """
    siblings, q = position.siblings(), position.q
    law = torch.zeros_like(position.p, dtype=torch.float64)
    reach = 1.0
    for node in candidates:
        q = draft.offered(node, q)
        accepts = siblings.accepts(q)
        if draft.drawing == "deterministic":
            token = draft.tokens[node]
            passed = float(accepts[token])
            law[token] += reach * passed
        else:
            accepted = accepts.double().mul_(q)
            passed = float(accepted.sum())
            law.add_(accepted, alpha=reach)
        reach *= max(0.0, 1.0 - passed)
        siblings.reject(draft.tokens[node], q)
        q = draft.left_of(q, node)
    residual = siblings.redraw(q)
    law.add_(residual, alpha=reach)
    return InducedLaw(law, residual, _conditional(draft, len(candidates), position.rule))


def _conditional(draft: Draft, candidates: int, rule: TokenRule) -> bool:
    if draft.drawing == "deterministic" or candidates == 1:
        return False
    return draft.drawing == "without_replacement" or isinstance(rule, TruncationRule)


def reference(rule: TokenRule, p: Tensor) -> Tensor:
    """p_ref [V]: the target's law under the rule's own allowed set, or p for rules without one (rules.md §1)."""
    return normalised(p * rule.allowed(p)) if isinstance(rule, TruncationRule) else p


def distance(law: Tensor, p_ref: Tensor) -> tuple[float | None, float, float]:
    """KL(law‖p_ref) in nats, total variation, and the mass of ``law`` where p_ref has none; KL is None where there is
    any such mass. Both [V] are renormalised in float64."""
    ours = normalised(law.double())
    theirs = p_ref.double()
    theirs = theirs / theirs.sum()
    tv = min(float((ours - theirs).abs_().sum()) / 2.0, 1.0)  # the bound last: a NaN stays one
    if float(theirs.min()) <= 0.0:
        escaped = float(ours.masked_fill(theirs > 0.0, 0.0).sum())
        if escaped > 0.0:
            return None, tv, min(escaped, 1.0)
    terms = (ours / theirs.clamp_min_(LEAST)).clamp_min_(LEAST).log_().mul_(ours)
    return max(float(terms.sum()), 0.0), tv, 0.0


def overshoot(draft: Draft, tested: list[int], position: RuledPosition) -> float | None:
    """Share of the ``tested`` candidates with q > p/ℓ, both as they were before any rejection; None for one-hot q."""
    if draft.drawing == "deterministic" or int(torch.count_nonzero(position.q)) == 1 or not tested:
        return None
    tokens = [draft.tokens[node] for node in tested]
    over = position.q[tokens] > position.p[tokens] / position.rule.ell
    return float(over.double().mean())


def distortion(draft: Draft, tested: list[int], position: RuledPosition, law: Tensor, conditional: bool) -> Distortion:
    """The record of one tested position."""
    kl, tv, escaped = distance(law, reference(position.rule, position.p))
    return Distortion(kl, tv, escaped, overshoot(draft, tested, position), conditional)
