"""Verification rules: a token rule is two vectors, and everything else follows from them (rules.md §1).

    induced(p, q) = q·accept + (1 − Σ q·accept)·residual

``decoding/siblings.py`` walks the candidates of one position with a rule; a chain is a position with one candidate.
p [V] is the target, q [V] the draft, both processed distributions in float32 over the same ids.
"""

from __future__ import annotations

from torch import Tensor

from core.rules.min_p_ceiling import MinPCeilingRule
from core.rules.target_law import TargetLawRule
from core.rules.token_rule import BlockRule, LenienceRule, LosslessRule, TokenRule
from core.rules.truncation import SoftTypicalRule, TruncationRule
from core.types import (
    AdaptiveInterpolation,
    Block,
    CosCD,
    CosWE,
    Lenience,
    Lossless,
    MinPCeiling,
    OvershootCeiling,
    RuleSpec,
    SpecCascade,
    Truncation,
    Typical,
)


def token_rule(spec: RuleSpec) -> TokenRule:
    """The rule of a specification; block verification judges one candidate as the lossless rule does (γ = 1)."""
    match spec:
        case Lossless():
            return LosslessRule()
        case Block():
            return BlockRule()
        case Lenience():
            return LenienceRule(spec)
        case CosWE() | CosCD() | AdaptiveInterpolation() | OvershootCeiling():
            return TargetLawRule(spec)
        case Typical(hard=False):
            return SoftTypicalRule(spec)
        case SpecCascade() | Typical() | Truncation():
            return TruncationRule(spec)
        case MinPCeiling():
            return MinPCeilingRule(spec)


def acceptance_mass(rule: TokenRule, p: Tensor, q: Tensor) -> float:
    """Σ q·a: how often a candidate drawn from q is accepted."""
    return float((q * rule.accept(p, q)).sum())


def induced(rule: TokenRule, p: Tensor, q: Tensor) -> Tensor:
    """The law [V] that one sampled candidate and its redraw really emit (rules.md §1)."""
    accepted = q * rule.accept(p, q)
    return accepted + (1.0 - accepted.sum()) * rule.residual(p, q)
