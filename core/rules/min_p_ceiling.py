"""The paper's hybrid of SpecCascade and lenience (Table 6): q itself inside the min-p set, a ceiling p/ℓ outside."""

from __future__ import annotations

import torch
from torch import Tensor

from core.rules.token_rule import capped_ratio
from core.sampling.allowed import min_p_set
from core.sampling.probability import norm_or
from core.types import MinPCeiling


class MinPCeilingRule:
    """accept y/q with y = q in A, else min(q, p/ℓ); residual norm (p−y)₊ (rules.md §1).

    ``allowed``: A is this set and not formed from p. Several candidates of one position are judged by one A, that of
    the original p, as the truncation rules' (rules.md §2): so the first candidate inside A passes.
    """

    def __init__(self, spec: MinPCeiling, allowed: Tensor | None = None) -> None:
        self.spec = spec
        self.ell = spec.ell
        self.allowed = allowed

    def fixed(self, p: Tensor) -> MinPCeilingRule:
        """The rule at a position whose original target is p [V]."""
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
