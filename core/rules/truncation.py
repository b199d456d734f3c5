"""Truncation rules: a candidate inside the target's allowed set A passes, whatever p and q say (paper Definition 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.rules.token_rule import capped_ratio
from core.sampling.allowed import allowed_by, entropy_threshold
from core.sampling.probability import norm_or, normalised
from core.types import TruncationSpec, Typical


class TruncationRule:
    """1[x ∈ A] with A formed from p, and an explicit choice of what a rejection is drawn from (rules.md §1)."""

    ell = 1.0

    def __init__(self, spec: TruncationSpec) -> None:
        self.redraw_from = spec.redraw
        self.recompute = spec.recompute
        self.spec = spec

    def at(self, p: Tensor) -> TruncationRule:
        """Itself: the walk of a position forms A (``decoding/siblings.py``)."""
        return self

    def allowed(self, p: Tensor) -> Tensor:
        """The allowed set A as a boolean mask [V]."""
        return allowed_by(self.spec, p)

    def threshold(self, p: Tensor) -> float | None:
        """None: the test is membership of A. A number τ: the test is min(1, p/τ)."""
        return None

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """The indicator of A, or min(1, p/τ)."""
        return self.test(p, self.allowed(p), self.threshold(p))

    def test(self, p: Tensor, allowed: Tensor, threshold: float | None) -> Tensor:
        """The accept vector [V] given A or τ; a token with p = 0 never passes."""
        return (
            (allowed & (p > 0.0)).to(p.dtype) if threshold is None else capped_ratio(p, torch.full_like(p, threshold))
        )

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """The redraw with A formed from p itself (:meth:`redraw`)."""
        return self.redraw(p, q, self.allowed(p))

    def redraw(self, p: Tensor, q: Tensor, allowed: Tensor) -> Tensor:
        """``target``: p (the authors' code) · ``target_in_set``: norm(p·1_A) (App. H.1) · ``draft_in_set``:
        norm(q·1_A) (Eq. 12-13), or as ``target_in_set`` where :meth:`falls_back`."""
        if self.redraw_from == "target":
            return p
        if self.redraw_from == "draft_in_set" and not self.falls_back(q, allowed):
            return normalised(q * allowed)
        return norm_or(p * allowed, p)

    def falls_back(self, q: Tensor, allowed: Tensor) -> bool:
        """True when ``draft_in_set`` finds no mass of q on A."""
        return self.redraw_from == "draft_in_set" and float((q * allowed).sum()) <= 0.0

    def bonus(self, p: Tensor) -> Tensor:
        """p, or p_Θ = norm(p·1_A) for the ``*_in_set`` redraws (App. H.1)."""
        return p if self.redraw_from == "target" else normalised(p * self.allowed(p))


class TypicalRule(TruncationRule):
    """Typical acceptance: the indicator of A, or, unless ``hard``, min(1, p/τ) as the authors' code runs it (paper
    Eq. 28, right and left side)."""

    def __init__(self, spec: Typical) -> None:
        super().__init__(spec)
        self.typical = spec

    def threshold(self, p: Tensor) -> float | None:
        """τ = min(ε, δe^(−H(p))), or None for the indicator."""
        if self.typical.hard:
            return None
        return entropy_threshold(p, self.typical.epsilon, self.typical.entropy_factor)
