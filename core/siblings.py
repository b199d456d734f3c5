"""Walking the candidates of one position with a rule: accept one, or reject all and redraw (rules.md §2).

p [V] is the target after the position's prefix, q [V] what the tested candidate was drawn from (one-hot when the
choice was deterministic).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from core.rules import SpecCascadeRule, TokenRule, without


class Siblings(Protocol):
    """One position's walk. ``p`` is the current target: what earlier siblings' rejections left of it."""

    p: Tensor

    def accept_prob(self, token: int, q: Tensor) -> float:
        """Probability with which ``token``, drawn from q, is accepted now."""
        ...

    def reject(self, token: int, q: Tensor) -> None:
        """Note that ``token``, drawn from q, was rejected."""
        ...

    def redraw(self, q: Tensor) -> Tensor:
        """What to draw from [V] when all were rejected; ``q`` is what the last candidate was drawn from."""
        ...

    def falls_back(self, q: Tensor) -> bool:
        """True when :meth:`redraw` can't draw from what the rule names and takes its stated substitute."""
        ...


class RecursiveRejection:
    """Each rejection leaves the residual as the next sibling's target; all rejected: draw from what is left.

    Lossless for any number of siblings, with or without replacement. With a one-hot q a rejection zeroes the token
    and renormalises (paper App. H.1).
    """

    def __init__(self, rule: TokenRule, p: Tensor) -> None:
        self.rule = rule
        self.p = p

    def accept_prob(self, token: int, q: Tensor) -> float:
        """The rule's accept vector at ``token``."""
        return float(self.rule.accept(self.p, q)[token])

    def reject(self, token: int, q: Tensor) -> None:
        """p ← residual(p, q)."""
        self.p = self.rule.residual(self.p, q)

    def redraw(self, q: Tensor) -> Tensor:
        """The current target."""
        return self.p

    def falls_back(self, q: Tensor) -> bool:
        """Never."""
        return False


class InSet:
    """The first candidate inside the allowed set A is accepted; a rejected token is zeroed (paper App. H.1).

    A is formed once per position from the original p, or again on the renormalised p when the rule recomputes. A
    position with a single *sampled* candidate (``alone``) is the token rule itself: its redraw is the rule's residual,
    which for ``redraw=target`` is p with the rejected token still in it (rules.md §1, test vectors).
    """

    def __init__(self, rule: SpecCascadeRule, p: Tensor, alone: bool) -> None:
        self.rule = rule
        self.p = p
        self.allowed = rule.allowed(p)
        self.alone = alone

    def accept_prob(self, token: int, q: Tensor) -> float:
        """1 inside A, else 0; a token of probability 0 is never inside, even where p_base·max p underflows."""
        return float(self.allowed[token] & (self.p[token] > 0.0))

    def reject(self, token: int, q: Tensor) -> None:
        """Zero ``token`` and renormalise."""
        if self.alone:
            return
        self.p = without(self.p, token)
        if self.rule.recompute:
            self.allowed = self.rule.allowed(self.p)

    def redraw(self, q: Tensor) -> Tensor:
        """As the rule's ``redraw`` says, from the current p and what remains of q."""
        return self.rule.redraw(self.p, q, self.allowed)

    def falls_back(self, q: Tensor) -> bool:
        """``draft_in_set`` without draft mass on A."""
        return self.rule.falls_back(q, self.allowed)


def siblings(rule: TokenRule, p: Tensor, alone: bool) -> Siblings:
    """The walk of ``rule`` at a position whose target is p [V]; ``alone``: it has one sampled candidate."""
    return InSet(rule, p, alone) if isinstance(rule, SpecCascadeRule) else RecursiveRejection(rule, p)
