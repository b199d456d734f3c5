"""Verification rules: a token rule is two vectors, and everything else follows from them (rules.md §1).

    induced(p, q) = q·accept + (1 − Σ q·accept)·residual

``core/siblings.py`` walks the candidates of one position with a rule; a chain is a position with one candidate.
p [V] is the target, q [V] the draft, both processed distributions in float32 over the same ids.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from core.types import Lenience, Lossless, RuleSpec, SpecCascade


def normalised(mass: Tensor) -> Tensor:
    """``mass`` [V] scaled to sum to 1; NaN-free callers check for zero mass first."""
    return mass / mass.sum()


def without(distribution: Tensor, token: int) -> Tensor:
    """``distribution`` [V] with ``token`` zeroed, renormalised; unchanged when nothing else has mass."""
    left = distribution.clone()
    left[token] = 0.0
    return normalised(left) if float(left.sum()) > 0.0 else distribution


class TokenRule(Protocol):
    """A rule at one position. All tensors are [V] float32."""

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
        ratio = p / (self.ell * q)
        return torch.where(q > 0.0, ratio, (p > 0.0).to(p.dtype)).clamp_max(1.0)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """norm (p−q)₊ with q unscaled, or p where nothing is left."""
        left = (p - q).clamp_min(0.0)
        return normalised(left) if float(left.sum()) > 0.0 else p

    def bonus(self, p: Tensor) -> Tensor:
        """p itself."""
        return p


class LenienceRule(LosslessRule):
    """min(1, p/(ℓq)) with the unscaled residual (paper Eq. 9); the induced law is Eq. 10 with Δ of Eq. 11."""

    def __init__(self, spec: Lenience) -> None:
        self.ell = spec.ell


class SpecCascadeRule:
    """1[p ≥ p_base·max p] (paper Eq. 5, 12, 27), with an explicit choice of what a rejection is drawn from."""

    def __init__(self, spec: SpecCascade) -> None:
        self.spec = spec
        self.recompute = spec.recompute

    def allowed(self, p: Tensor) -> Tensor:
        """The allowed set A as a boolean mask [V] (min-p, paper Eq. 5)."""
        return p >= self.spec.p_base * p.max()

    def accept(self, p: Tensor, q: Tensor) -> Tensor:
        """The indicator of A."""
        return self.allowed(p).to(p.dtype)

    def residual(self, p: Tensor, q: Tensor) -> Tensor:
        """The redraw with A formed from p itself (:meth:`redraw`)."""
        return self.redraw(p, q, self.allowed(p))

    def redraw(self, p: Tensor, q: Tensor, allowed: Tensor) -> Tensor:
        """``target``: p (the authors' code) · ``target_in_set``: norm(p·1_A) (App. H.1) · ``draft_in_set``:
        norm(q·1_A) (Eq. 12–13), or as ``target_in_set`` where :meth:`falls_back`."""
        if self.spec.redraw == "target":
            return p
        if self.spec.redraw == "draft_in_set" and not self.falls_back(q, allowed):
            return normalised(q * allowed)
        inside = p * allowed
        return normalised(inside) if float(inside.sum()) > 0.0 else p

    def falls_back(self, q: Tensor, allowed: Tensor) -> bool:
        """True when ``draft_in_set`` finds no mass of q on A."""
        return self.spec.redraw == "draft_in_set" and float((q * allowed).sum()) <= 0.0

    def bonus(self, p: Tensor) -> Tensor:
        """p, or p_Θ = norm(p·1_A) for the ``*_in_set`` redraws (App. H.1)."""
        return p if self.spec.redraw == "target" else normalised(p * self.allowed(p))


def token_rule(spec: RuleSpec) -> TokenRule:
    """The rule of a specification."""
    match spec:
        case Lossless():
            return LosslessRule()
        case Lenience():
            return LenienceRule(spec)
        case SpecCascade():
            return SpecCascadeRule(spec)


def acceptance_mass(rule: TokenRule, p: Tensor, q: Tensor) -> float:
    """Σ q·a: how often a candidate drawn from q is accepted."""
    return float((q * rule.accept(p, q)).sum())


def induced(rule: TokenRule, p: Tensor, q: Tensor) -> Tensor:
    """The law [V] that one sampled candidate and its redraw really emit (rules.md §1)."""
    accepted = q * rule.accept(p, q)
    return accepted + (1.0 - accepted.sum()) * rule.residual(p, q)
