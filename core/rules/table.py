"""From a rule's specification to its token rule, and what follows from a token rule's two vectors (rules.md §1).

    induced(p, q) = q·accept + (1 − Σ q·accept)·residual

``decoding/siblings.py`` walks the candidates of one position with a rule; a chain is a position with one candidate.
p [V] is the target, q [V] the draft, both processed distributions in float32 over the same ids.
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from core.rules.catalogue import entry_of
from core.rules.token_rule import TokenRule
from core.types import RuleSpec


def token_rule(spec: RuleSpec) -> TokenRule:
    """The token rule of a specification, of the class that the catalogue names. Block verification judges a single
    candidate as the lossless rule does (γ = 1)."""
    module, _, name = entry_of(spec).verifier.partition(":")
    return getattr(import_module(module), name)(spec)


def acceptance_mass(rule: TokenRule, p: Tensor, q: Tensor) -> float:
    """Σ q·a: how often a candidate drawn from q is accepted."""
    return float((q * rule.accept(p, q)).sum())


def induced(rule: TokenRule, p: Tensor, q: Tensor) -> Tensor:
    """The law [V] that one sampled candidate and its redraw really emit (rules.md §1)."""
    accepted = q * rule.accept(p, q)
    return accepted + ((1.0 - rule.accept(p, q)) * q).sum() * rule.residual(p, q)
