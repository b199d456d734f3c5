"""The law that a rule actually emits at one position of a walk, and its distance from the reference law (metrics.md).

The induced law counts every way in which the position can emit a token: accepted as any of its candidates, or redrawn
after all were rejected. Accept vectors and redraws are the float32 tensors of the walk itself, combined in float64. The
lossless rule is measured like any other: its distortion is rounding error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from core.decoding.block import block_of
from core.decoding.siblings import RuledPosition, position_of
from core.drafting.draft import Draft
from core.records import Distortion, Verdict
from core.rules.token_rule import BlockRule, TokenRule
from core.rules.truncation import TruncationRule
from core.sampling.probability import normalised

LEAST = 1e-300
"""Substitute for 0 in terms 0·log 0, which would be NaN."""


@dataclass(frozen=True, slots=True)
class InducedLaw:
    """Law of one position: it emits ``law`` [V], and draws from ``residual`` [V] when all candidates are rejected.

    ``conditional``: the law is conditional on the tokens drafted there, and would differ for other siblings.
    """

    law: Tensor
    residual: Tensor
    conditional: bool


def induced_law(draft: Draft, candidates: list[int], position: RuledPosition) -> InducedLaw:
    """The law of a position whose ``candidates`` are all of its candidates, tested in this order.

    A deterministic candidate is one token, so it adds reach × accept at that token. A sampled candidate is averaged
    over its q. This is exact for one candidate, and for several drawn with replacement unless the rule zeroes the
    rejected token; otherwise, and without replacement, the law is conditional on the drafted tokens being rejected.
    """
    siblings, q = position.siblings(), position.q
    law = torch.zeros_like(position.p, dtype=torch.float64)
    reach = 1.0
    for node in candidates:
        q = draft.offered(node, q)
        accepts = siblings.accepts(q)
        if draft.drawing == "deterministic":
            token = draft.tokens[node]
            failed = 1.0 - float(accepts[token])
            law[token] += reach * float(accepts[token])
        else:
            accepted = accepts.double().mul_(q)
            failed = float(((1.0 - accepts.double()) * q).sum())  # 1 − Σqa would leave rounding where nothing fails
            law.add_(accepted, alpha=reach)
        reach *= max(0.0, failed)
        siblings.reject(draft.tokens[node], q)
        if len(candidates) > 1:  # one candidate is averaged over its q, so no token of q is gone
            q = draft.left_of(q, node)
    residual = siblings.redraw(q)
    law.add_(residual, alpha=reach)
    return InducedLaw(law, residual, _conditional(draft, len(candidates), position.rule))


def _conditional(draft: Draft, candidates: int, rule: TokenRule) -> bool:
    if draft.drawing == "deterministic" or candidates == 1:
        return False
    return draft.drawing == "without_replacement" or isinstance(rule, TruncationRule)


def reference(rule: TokenRule, p: Tensor) -> Tensor:
    """p_ref [V]: the target's law under the rule's own allowed set, or p for rules without a set (rules.md §1)."""
    return normalised(p * rule.allowed(p)) if isinstance(rule, TruncationRule) else p


def distance(law: Tensor, p_ref: Tensor) -> tuple[float | None, float, float]:
    """KL(law‖p_ref) in nats, total variation, and the mass of ``law`` outside the support of p_ref; KL is None if
    there is any such mass. Both [V] are renormalised in float64."""
    ours = normalised(law.double())
    theirs = p_ref.double()
    theirs = theirs / theirs.sum()
    tv = min(float((ours - theirs).abs_().sum()) / 2.0, 1.0)  # in this order, min keeps a NaN
    if float(theirs.min()) <= 0.0:
        escaped = float(ours.masked_fill(theirs > 0.0, 0.0).sum())
        if escaped > 0.0:
            return None, tv, min(escaped, 1.0)
    terms = (ours / theirs.clamp_min_(LEAST)).clamp_min_(LEAST).log_().mul_(ours)
    return max(float(terms.sum()), 0.0), tv, 0.0


def overshoot(draft: Draft, tested: list[int], position: RuledPosition) -> float | None:
    """Share of the ``tested`` candidates with q > p/ℓ, with p and q from before any rejection; None for one-hot q."""
    if draft.drawing == "deterministic" or int(torch.count_nonzero(position.q)) == 1 or not tested:
        return None
    tokens = [draft.tokens[node] for node in tested]
    over = position.q[tokens] > position.p[tokens] / position.rule.ell
    return float(over.double().mean())


def distortion(draft: Draft, tested: list[int], position: RuledPosition, law: Tensor, conditional: bool) -> Distortion:
    """The record of one tested position."""
    kl, tv, escaped = distance(law, reference(position.rule, position.p))
    return Distortion(kl, tv, escaped, overshoot(draft, tested, position), conditional)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurement of one tested position: the law that its rule emits and the residual that it redraws from, both [V],
    and the distance to p_ref. ``law`` and ``distortion`` are None if the position has no law of its own (block
    verification)."""

    law: Tensor | None
    residual: Tensor
    distortion: Distortion | None


def measure(
    draft: Draft,
    verdict: Verdict,
    visited: dict[int, Tensor],
    rule: TokenRule,
    untempered: Callable[[int], Tensor] | None = None,
) -> dict[int, Measurement]:
    """Measurements of all tested positions of a walk, by node. ``visited`` holds p [V] by node, as the walk read it.

    What a position of a block emits depends on the coins of the whole chain. So a block's positions have only
    residuals, from which each accepted length would have drawn; test_block.py verifies by enumeration that the chain's
    law is the target's.
    """
    block = block_of(draft, visited.__getitem__) if isinstance(rule, BlockRule) else None
    tried = {trial.node for trial in verdict.trials}
    measured = {}
    for at, p in visited.items():
        candidates = draft.children(at)
        tested = [node for node in candidates if node in tried]
        if not tested:
            continue
        if block is not None:
            measured[at] = Measurement(None, block.residual(at + 1), None)
            continue
        position = position_of(draft, at, p, rule, untempered)
        one = induced_law(draft, candidates, position)
        distance = distortion(draft, tested, position, one.law, one.conditional)
        measured[at] = Measurement(one.law, one.residual, distance)
    return measured
