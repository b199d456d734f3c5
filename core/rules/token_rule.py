"""A token rule is two vectors (rules.md §1): how likely each token is accepted, and what a rejection draws from.

p [V] is the target, q [V] the draft, both processed distributions over the same ids.
"""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import Tensor

from core.sampling.allowed import min_p_set
from core.sampling.probability import norm_or
from core.types import Lenience, Lossless, MinPCeiling, Spec


def capped_ratio(wanted: Tensor, q: Tensor) -> Tensor:
    """min(1, wanted/q) [V]; a token with q = 0 can't have been drawn: 1 where it is wanted, else 0."""
    return (wanted / q).nan_to_num_(nan=0.0, posinf=1.0).clamp_max_(1.0)


class TokenRule(Protocol):
    """A rule at one position. All tensors are [V]."""

    ell: float
    """The ceiling p/ℓ past which q overshoots (metrics.md "overshoot"); 1 for rules without one."""

    def at(self, p: Tensor) -> TokenRule:
        """The rule at a position whose target is p before any of its candidates is rejected: itself, unless it forms
        something from that p once."""
        ...

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """Probability with which each token is accepted when drawn from q."""
        ...

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """What a rejected position is drawn from."""
        ...

    def bonus(self, p: Tensor) -> Tensor:
        """What the token after a fully accepted path is drawn from."""
        ...


LOSSLESS = Lossless()


class LosslessRule:
    """min(1, p/q) and norm (p−q)₊: the induced law is p (article; paper Eq. 1)."""

    ell = 1.0

    def __init__(self, spec: Spec = LOSSLESS) -> None:
        """``spec``: of a rule that accepts so and has no parameter."""

    def at(self, p: Tensor) -> Self:
        """Itself: every candidate is judged by the current p."""
        return self

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


class MinPCeilingRule:
    """The paper's hybrid of SpecCascade and lenience (Table 6): accept y/q with y = q in the min-p set A, else
    min(q, p/ℓ); residual norm (p−y)₊ (rules.md §1).

    ``allowed``: the set A where it is not to be formed from p. All candidates of one position are judged by the A of
    its original p, as with the truncation rules (rules.md §2), so that the first candidate inside A passes.
    """

    def __init__(self, spec: MinPCeiling, allowed: Tensor | None = None) -> None:
        self.spec = spec
        self.ell = spec.ell
        self.allowed = allowed

    def at(self, p: Tensor) -> MinPCeilingRule:
        """The rule with A formed from this p [V]."""
        return MinPCeilingRule(self.spec, min_p_set(p, self.spec.p_base))

    def capped(self, p: Tensor, q: Tensor) -> Tensor:
        """y [V]."""
        allowed = min_p_set(p, self.spec.p_base) if self.allowed is None else self.allowed
        return torch.where(allowed, q, torch.minimum(q, p / self.ell))

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """y/q; a token with q = 0 can't have been drawn: 1 where p > 0, else 0."""
        return torch.where(q > 0.0, capped_ratio(self.capped(p, q), q), (p > 0.0).to(p.dtype))

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """norm (p−y)₊, or p where nothing is left."""
        return norm_or((p - self.capped(p, q)).clamp_min(0.0), p)

    def bonus(self, p: Tensor) -> Tensor:
        """p itself."""
        return p
