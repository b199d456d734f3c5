"""Allowed sets A of truncation sampling, as boolean masks [V] of a distribution p [V] (paper Eq. 4-6).

Sets defined by a threshold use the comparisons printed in the paper; top-k and top-p are the library's logits
processors. A token of probability 0 is in no set, and the most probable token is in every set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor
from transformers.generation.logits_process import LogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from core.types import AllowedSet, SpecCascade, TruncationSpec, Typical


def allowed_by(spec: TruncationSpec, p: Tensor) -> Tensor:
    """Mask [V] of the tokens that ``spec`` accepts, formed from p [V]."""
    match spec:
        case SpecCascade(p_base=p_base):
            return min_p_set(p, p_base)
        case Typical(epsilon=epsilon, entropy_factor=factor):
            return above(p, entropy_threshold(p, epsilon, factor))
        case _:
            return allowed_set(spec.allowed, p)


def allowed_set(spec: AllowedSet, p: Tensor) -> Tensor:
    """Mask [V] of A: each truncation applies to what earlier truncations left, renormalised (the library's order)."""
    mask = p > 0.0
    left = p
    for cut in _cuts(spec):
        mask = mask & cut(left)
        left = p * mask
        left = left / left.sum()
    return mask


def _cuts(spec: AllowedSet) -> Iterator[Callable[[Tensor], Tensor]]:
    if spec.top_k:
        yield lambda p: _kept(TopKLogitsWarper(spec.top_k), p)
    if spec.top_p < 1.0:
        yield lambda p: _kept(TopPLogitsWarper(spec.top_p), p)
    if spec.min_p:
        yield lambda p: min_p_set(p, spec.min_p)
    if spec.epsilon:
        yield lambda p: above(p, spec.epsilon)
    if spec.eta:
        yield lambda p: above(p, entropy_threshold(p, spec.eta, spec.entropy_factor))


def min_p_set(p: Tensor, base: float) -> Tensor:
    """Mask [V]: p ≥ base·max p (paper Eq. 5)."""
    return (p >= base * p.max()) & (p > 0.0)


def entropy_threshold(p: Tensor, epsilon: float, factor: float) -> float:
    """τ = min(ε, δe^(−H(p))), H in nats (paper Eq. 6)."""
    return min(epsilon, factor * math.exp(-float(torch.special.entr(p).sum())))


def above(p: Tensor, threshold: float) -> Tensor:
    """Mask [V]: p ≥ threshold, and the most probable tokens in any case (the library, too, keeps at least one)."""
    return (p >= min(threshold, float(p.max()))) & (p > 0.0)


def _kept(warper: LogitsProcessor, p: Tensor) -> Tensor:
    ids = cast(torch.LongTensor, torch.empty((1, 0), dtype=torch.long))
    scores = cast(torch.FloatTensor, p.log()[None])
    return torch.isfinite(warper(ids, scores)[0])
