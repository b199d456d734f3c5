"""Verification rules: one frozen class per rule of rules.md, with validated parameters. No torch here."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.types.base import Spec

Redraw = Literal["target", "target_in_set", "draft_in_set"]
"""The distribution that a truncation rule redraws from after a rejection: p (the authors' code), norm (p·1_A) (paper
App. H.1) or norm (q·1_A) (paper Eq. 12-13)."""


class Lossless(Spec):
    """Accept min(1, p/q), redraw from norm (p−q)₊ (article; paper Eq. 1)."""

    kind: Literal["lossless"] = "lossless"


class Block(Spec):
    """Block verification: a whole chain judged at once, lossless (Sun et al. 2024; rules.md §2). Chains only."""

    kind: Literal["block"] = "block"


class Lenience(Spec):
    """Accept min(1, p/(ℓq)), redraw from norm (p−q)₊ with q unscaled (paper Eq. 9)."""

    kind: Literal["lenience"] = "lenience"
    ell: float = Field(gt=0.0, le=1.0)


class CosWE(Spec):
    """Toward r* = (1−w)p + wq, w the *draft's* weight (paper Eq. 2, 7-8, whose λ is 1 − w)."""

    kind: Literal["cos_we"] = "cos_we"
    draft_weight: float = Field(ge=0.0, le=1.0)


class CosCD(Spec):
    """Toward r* = norm (p/q^μ) (paper Eq. 3, contrastive decoding)."""

    kind: Literal["cos_cd"] = "cos_cd"
    mu: float = Field(ge=0.0, le=100.0)


class AdaptiveInterpolation(Spec):
    """Ablation of paper §4: lenience's Δ where the draft underestimates, CoS's mixture elsewhere, renormalised."""

    kind: Literal["adaptive_interpolation"] = "adaptive_interpolation"
    lam: float = Field(gt=0.0, le=1.0)


class OvershootCeiling(Spec):
    """Ablation of paper §4: CoS's mixture, capped at p/λ, renormalised."""

    kind: Literal["overshoot_ceiling"] = "overshoot_ceiling"
    lam: float = Field(gt=0.0, le=1.0)


class MinPCeiling(Spec):
    """The paper's hybrid (Table 6): q itself inside the min-p set, lenience's ceiling min(q, p/ℓ) outside."""

    kind: Literal["min_p_ceiling"] = "min_p_ceiling"
    p_base: float = Field(gt=0.0, le=1.0)
    ell: float = Field(gt=0.0, le=1.0)


class AllowedSet(Spec):
    """An allowed set A of tokens, by truncations in the library's order: top-k, top-p, min-p, ε, η, each applied to the
    renormalised result of the previous one. 0 (top-p: 1) is off."""

    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    epsilon: float = Field(default=0.0, ge=0.0, lt=1.0)
    eta: float = Field(default=0.0, ge=0.0, le=1.0, description="η-sampling's ε")
    delta: float | None = Field(default=None, gt=0.0, le=1.0, description="η-sampling's δ; None stands for √η")

    @model_validator(mode="after")
    def _delta_has_its_set(self) -> AllowedSet:
        if self.delta is not None and not self.eta:
            raise ValueError(f"delta={self.delta:g} belongs to η-sampling: give eta as well")
        return self

    @property
    def entropy_factor(self) -> float:
        """η-sampling's δ."""
        return math.sqrt(self.eta) if self.delta is None else self.delta

    @property
    def everything(self) -> bool:
        """True when no token is excluded."""
        return AllowedSet(**{name: getattr(self, name) for name in AllowedSet.model_fields}) == AllowedSet()


class SpecCascade(Spec):
    """Accept 1[p ≥ p_base·max p] (paper Eq. 5, 12); ``redraw``: what is drawn after a rejection (rules.md)."""

    kind: Literal["spec_cascade"] = "spec_cascade"
    p_base: float = Field(gt=0.0, le=1.0)
    redraw: Redraw = "target_in_set"
    recompute: bool = False

    @property
    def allowed(self) -> AllowedSet:
        """The rule's allowed set A."""
        return AllowedSet(min_p=self.p_base)


class Typical(Spec):
    """Accept 1[p ≥ min(ε, δe^(−H(p)))] (paper Eq. 6, 28; Medusa), or min(1, p/τ) when not ``hard``.

    ``delta`` None stands for √ε. Up to δ = 1 the most probable token is always in the set, since e^(−H) ≤ max p.
    """

    kind: Literal["typical"] = "typical"
    epsilon: float = Field(gt=0.0, le=1.0)
    delta: float | None = Field(default=None, gt=0.0, le=1.0)
    redraw: Redraw = "target_in_set"
    hard: bool = True
    recompute: bool = False

    @property
    def entropy_factor(self) -> float:
        """δ."""
        return math.sqrt(self.epsilon) if self.delta is None else self.delta

    @property
    def allowed(self) -> AllowedSet:
        """The rule's allowed set A, that of the library's η processor."""
        return AllowedSet(eta=self.epsilon, delta=self.delta)


class Truncation(AllowedSet):
    """Accept 1[x ∈ A] for any allowed set A (paper Definition 1)."""

    kind: Literal["truncation"] = "truncation"
    redraw: Redraw = "target_in_set"
    recompute: bool = False

    @model_validator(mode="after")
    def _cuts_something(self) -> Truncation:
        if self.everything:
            raise ValueError("a truncation rule needs an allowed set: give top_k, top_p, min_p, epsilon or eta")
        return self

    @property
    def allowed(self) -> AllowedSet:
        """The rule's allowed set A."""
        return AllowedSet(**{name: getattr(self, name) for name in AllowedSet.model_fields})


RuleSpec = Annotated[
    Lossless
    | Block
    | Lenience
    | CosWE
    | CosCD
    | SpecCascade
    | Typical
    | Truncation
    | AdaptiveInterpolation
    | OvershootCeiling
    | MinPCeiling,
    Field(discriminator="kind"),
]

TruncationSpec = SpecCascade | Typical | Truncation
"""Rules that accept inside an allowed set."""

TargetLawSpec = CosWE | CosCD | AdaptiveInterpolation | OvershootCeiling
"""Rules that verify losslessly, but toward a law r* other than p."""


def is_lossless(spec: RuleSpec) -> bool:
    """True for rules whose output follows the target's law for every draft."""
    return isinstance(spec, Lossless | Block)
