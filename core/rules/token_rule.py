"""A token rule is two vectors (rules.md §1): how likely each token is accepted, and what a rejection draws from.

p [V] is the target, q [V] the draft, both processed distributions over the same ids.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from core.sampling.probability import norm_or
from core.types import Lenience


def capped_ratio(wanted: Tensor, q: Tensor) -> Tensor:
    """min(1, wanted/q) [V]; a token with q = 0 can't have been drawn: 1 where it is wanted, else 0."""
    return (wanted / q).nan_to_num_(nan=0.0, posinf=1.0).clamp_max_(1.0)


class TokenRule(Protocol):
    """A rule at one position. All tensors are [V]."""

    ell: float
    """The ceiling p/ℓ past which q overshoots (metrics.md "overshoot"); 1 for rules without one."""

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """Probability with which each token is accepted when drawn from q."""
        ...

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """What a rejected position is drawn from."""
        ...

    def bonus(self, p: Tensor) -> Tensor:
        """What the token after a fully accepted path is drawn from."""
        ...


class LosslessRule:
    """min(1, p/q) and norm (p−q)₊: the induced law is p (article; paper Eq. 1)."""

    ell = 1.0

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """min(1, p/(ℓq)); a token with q = 0 can't have been drawn: 1 where p > 0, else 0."""
        return capped_ratio(p, self.ell * q)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """norm (p−q)₊ with q unscaled, or p where nothing is left."""
        return norm_or((p - q).clamp_min(0.0), p)

    def bonus(self, p: Tensor) -> Tensor:
        """p itself."""
        return p


class BlockRule(LosslessRule):
    """Block verification judges whole chains (``decoding/block.py``), and a candidate by itself as lossless does."""


class LenienceRule(LosslessRule):
    """min(1, p/(ℓq)) with the unscaled residual (paper Eq. 9); the induced law is Eq. 10 with Δ of Eq. 11."""

    def __init__(self, spec: Lenience) -> None:
        self.ell = spec.ell
