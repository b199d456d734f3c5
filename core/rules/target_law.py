"""Rules that verify losslessly toward another law r* than p (paper §2.2, §3.1 and the ablations of §4).

accept = min(1, r*/q), residual = norm (r*−q)₊, so the induced law of a sampled candidate is r* itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.rules.token_rule import capped_ratio
from core.sampling.probability import norm_or
from core.types import AdaptiveInterpolation, CosCD, CosWE, OvershootCeiling, TargetLawSpec


def delta(p: Tensor, q: Tensor, ell: float) -> float | None:
    """Δ of paper Eq. 11: lenience's coefficient where the draft underestimates; None where p and q are the same.

    As Σ(q−p/ℓ)₊ / Σ(q−p)₊: Eq. 11's sums of absolute values are these, without their cancellation.
    """
    distance = float((q - p).clamp_min(0.0).sum())
    return float((q - p / ell).clamp_min(0.0).sum()) / distance if distance > 0.0 else None


class TargetLawRule:
    """Lossless toward :meth:`law`."""

    ell = 1.0

    def __init__(self, spec: TargetLawSpec) -> None:
        self.spec = spec
        if isinstance(spec, OvershootCeiling):
            self.ell = spec.lam

    def at(self, p: Tensor) -> TargetLawRule:
        """Itself: the walk of a position forms r* (``decoding/siblings.py``)."""
        return self

    def law(self, p: Tensor, q: Tensor) -> Tensor:
        """r* [V]."""
        match self.spec:
            case CosWE(draft_weight=weight):
                return (1.0 - weight) * p + weight * q
            case CosCD(mu=mu):
                return contrasted(p, q, mu)
            case AdaptiveInterpolation(lam=lam):
                return interpolated(p, q, lam)
            case OvershootCeiling(lam=lam):
                mixture = torch.where(q <= p / lam, lam * p + (1.0 - lam) * q, p / lam)
                return norm_or(mixture, p)

    def falls_back(self, p: Tensor, q: Tensor) -> bool:
        """True where p/q^μ leaves nothing, so that r* is p (rules.md §1)."""
        return isinstance(self.spec, CosCD) and not bool(((p > 0.0) & (q > 0.0)).any())

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """min(1, r*/q)."""
        return capped_ratio(self.law(p, q), q)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """norm (r*−q)₊, or p where nothing is left."""
        return norm_or((self.law(p, q) - q).clamp_min(0.0), p)

    def bonus(self, p: Tensor) -> Tensor:
        """p: r* needs a draft, and after a fully accepted path there is none."""
        return p


def contrasted(p: Tensor, q: Tensor, mu: float) -> Tensor:
    """norm (p/q^μ) with p/q^μ := 0 where q = 0, or p where nothing is left (paper Eq. 3).

    In logarithms: q^μ of an improbable token underflows long before the ratio does.
    """
    both = (p > 0.0) & (q > 0.0)
    if not bool(both.any()):
        return p
    scores = torch.where(both, p.log() - mu * q.log(), -torch.inf)
    return torch.softmax(scores, dim=-1)


def interpolated(p: Tensor, q: Tensor, lam: float) -> Tensor:
    """norm (q + Δ(p−q) where q ≤ p, else λp + (1−λ)q), Δ of Eq. 11 at ℓ = λ; p where TV(p, q) = 0."""
    coefficient = delta(p, q, lam)
    if coefficient is None:
        return p
    return norm_or(torch.where(q <= p, q + coefficient * (p - q), lam * p + (1.0 - lam) * q), p)
