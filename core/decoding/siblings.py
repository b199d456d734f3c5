"""Walking the candidates of one position with a rule: accept one, or reject all and redraw (rules.md §2).

p [V] is the target after the position's prefix, q [V] what the tested candidate was drawn from (one-hot when the
choice was deterministic).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from core.drafting.draft import Draft
from core.rules.target_law import TargetLawRule
from core.rules.token_rule import LosslessRule, TokenRule
from core.rules.truncation import TruncationRule
from core.sampling.probability import norm_or, one_hot, without


class Siblings(Protocol):
    """One position's walk. ``p`` is the current target: what earlier siblings' rejections left of it (of a rule with a
    law r* of its own: the target as it was)."""

    p: Tensor

    def accepts(self, q: Tensor) -> Tensor:
        """Probability [V] with which each token, drawn from q, is accepted now."""
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

    def accepts(self, q: Tensor) -> Tensor:
        """The rule's accept vector."""
        return self.rule.accept(self.p, q)

    def reject(self, token: int, q: Tensor) -> None:
        """p ← residual(p, q)."""
        self.p = self.rule.residual(self.p, q)

    def redraw(self, q: Tensor) -> Tensor:
        """The current target."""
        return self.p

    def falls_back(self, q: Tensor) -> bool:
        """Never."""
        return False


class TowardLaw(RecursiveRejection):
    """Lossless toward r*, formed once per position; ``p`` stays the target's own (rules.md §2)."""

    def __init__(self, law: Tensor, p: Tensor, substituted: bool) -> None:
        super().__init__(LosslessRule(), p)
        self.law = law
        self.substituted = substituted

    def accepts(self, q: Tensor) -> Tensor:
        """min(1, r*/q)."""
        return self.rule.accept(self.law, q)

    def reject(self, token: int, q: Tensor) -> None:
        """r* ← norm (r*−q)₊, or p where nothing is left."""
        self.law = norm_or((self.law - q).clamp_min(0.0), self.p)

    def redraw(self, q: Tensor) -> Tensor:
        """What is left of r*."""
        return self.law

    def falls_back(self, q: Tensor) -> bool:
        """The rule's formula of r* left nothing, and p stands in for it."""
        return self.substituted


class InSet:
    """The first candidate inside the allowed set A is accepted; a rejected token is zeroed (paper App. H.1).

    A and τ are formed once per position from the original p, or again on the renormalised p when the rule recomputes.
    A position with a single *sampled* candidate (``alone``) is the token rule itself: its redraw is the rule's
    residual, which for ``redraw=target`` is p with the rejected token still in it (rules.md §1, test vectors).
    """

    def __init__(self, rule: TruncationRule, p: Tensor, alone: bool) -> None:
        self.rule = rule
        self.p = p
        self.alone = alone
        self._form()

    def _form(self) -> None:
        self.allowed = self.rule.allowed(self.p)
        self.threshold = self.rule.threshold(self.p)

    def accepts(self, q: Tensor) -> Tensor:
        """1 inside A, else 0, or min(1, p/τ); a token of probability 0 never passes, even where a bound underflows."""
        return self.rule.test(self.p, self.allowed, self.threshold)

    def reject(self, token: int, q: Tensor) -> None:
        """Zero ``token`` and renormalise."""
        if self.alone:
            return
        self.p = without(self.p, token)
        if self.rule.recompute:
            self._form()

    def redraw(self, q: Tensor) -> Tensor:
        """As the rule's ``redraw`` says, from the current p and what remains of q."""
        return self.rule.redraw(self.p, q, self.allowed)

    def falls_back(self, q: Tensor) -> bool:
        """``draft_in_set`` without draft mass on A."""
        return self.rule.falls_back(q, self.allowed)


def siblings(rule: TokenRule, p: Tensor, q: Tensor, alone: bool, law: Tensor | None = None) -> Siblings:
    """The walk of ``rule`` at a position whose target is p [V] and whose first candidate was drawn from q [V].

    ``alone``: it has one sampled candidate. ``law`` [V] stands in for the rule's r*(p, q): greedy decoding forms r* of
    other distributions than it walks with.
    """
    match rule:
        case TruncationRule():
            return InSet(rule, p, alone)
        case TargetLawRule():
            return TowardLaw(rule.law(p, q) if law is None else law, p, law is None and rule.falls_back(p, q))
        case _:
            return RecursiveRejection(rule.at(p), p)


@dataclass(frozen=True, slots=True)
class RuledPosition:
    """One position of a draft as its rule meets it: ``p`` [V] the target, ``q`` [V] what the first candidate was drawn
    from. ``law`` [V] replaces the rule's r*(p, q) where that is not formed from them (greedy decoding), else None."""

    rule: TokenRule
    p: Tensor
    q: Tensor
    alone: bool
    law: Tensor | None = None

    def siblings(self) -> Siblings:
        """A fresh walk of the position's candidates."""
        return siblings(self.rule, self.p, self.q, self.alone, self.law)


def position_of(
    draft: Draft, at: int, p: Tensor, rule: TokenRule, untempered: Callable[[int], Tensor] | None = None
) -> RuledPosition:
    """The position after node ``at`` of ``draft``, which has candidates there; ``untempered`` as in ``verify.walk``."""
    candidates = draft.children(at)
    law = None
    if untempered is not None and isinstance(rule, TargetLawRule):
        wanted = rule.law(untempered(at), draft.untempered(candidates[0], len(p), p.device))
        law = one_hot(int(wanted.argmax()), len(p), p.device)
    alone = len(candidates) == 1 and draft.drawing != "deterministic"
    return RuledPosition(rule, p, draft.proposal(candidates[0], len(p), p.device), alone, law)
