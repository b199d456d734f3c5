"""Walking the candidates of one position with a rule: accept one, or reject all and redraw (rules.md §2).

p [V] is the target after the position's prefix; q [V] is what the tested candidate was drawn from (one-hot if the
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
    """Walk of one position. ``p`` is the current target: what the rejections of earlier siblings left of it (for a
    rule with a law r* of its own, the original target)."""

    p: Tensor

    def accepts(self, q: Tensor) -> Tensor:
        """Probability [V] with which each token, drawn from q, is accepted now."""
        ...

    def reject(self, token: int, q: Tensor) -> None:
        """Update the walk after the rejection of ``token``, drawn from q."""
        ...

    def redraw(self, q: Tensor) -> Tensor:
        """Distribution [V] to draw from when all were rejected; ``q`` is what is left of the candidates' q."""
        ...

    def falls_back(self, q: Tensor) -> bool:
        """True if :meth:`redraw` can't use the distribution that the rule names and takes its stated substitute."""
        ...


class RecursiveRejection:
    """Walk in which each rejection leaves the residual as the next target; the redraw is from the last residual.

    With the lossless rule this is lossless for any number of siblings, with or without replacement. With a one-hot q,
    a rejection zeroes the token and renormalises (paper App. H.1).
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
        """Always False."""
        return False


class TowardLaw(RecursiveRejection):
    """Walk that is lossless toward r*, formed once per position; ``p`` stays the original target (rules.md §2)."""

    def __init__(self, law: Tensor, p: Tensor, substituted: bool) -> None:
        super().__init__(LosslessRule(), p)
        self.law = law
        self.substituted = substituted

    def accepts(self, q: Tensor) -> Tensor:
        """min(1, r*/q)."""
        return self.rule.accept(self.law, q)

    def reject(self, token: int, q: Tensor) -> None:
        """r* ← norm (r*−q)₊, or p if nothing is left."""
        self.law = norm_or((self.law - q).clamp_min(0.0), self.p)

    def redraw(self, q: Tensor) -> Tensor:
        """What is left of r*."""
        return self.law

    def falls_back(self, q: Tensor) -> bool:
        """True if the rule's formula for r* left nothing, so that p replaces r*."""
        return self.substituted


class InSet:
    """Walk that accepts the first candidate inside the allowed set A; a rejected token is zeroed (paper App. H.1).

    A and τ are formed once per position from the original p, or again from the renormalised p if the rule recomputes.
    A position with a single *sampled* candidate (``alone``) follows the token rule itself: its redraw is the rule's
    residual, which for ``redraw=target`` is p including the rejected token (rules.md §1, test vectors).
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
        """1 inside A, else 0, or min(1, p/τ); a token of probability 0 never passes, even if a bound underflows."""
        return self.rule.test(self.p, self.allowed, self.threshold)

    def reject(self, token: int, q: Tensor) -> None:
        """Zero ``token`` and renormalise."""
        if self.alone:
            return
        self.p = without(self.p, token)
        if self.rule.recompute:
            self._form()

    def redraw(self, q: Tensor) -> Tensor:
        """Distribution of the rule's ``redraw`` option, from the current p and what is left of q."""
        return self.rule.redraw(self.p, q, self.allowed)

    def falls_back(self, q: Tensor) -> bool:
        """True for ``draft_in_set`` without draft mass on A."""
        return self.rule.falls_back(q, self.allowed)


def siblings(rule: TokenRule, p: Tensor, q: Tensor, alone: bool, law: Tensor | None = None) -> Siblings:
    """The walk of ``rule`` at a position whose target is p [V] and whose first candidate was drawn from q [V].

    ``alone``: the position has one sampled candidate. ``law`` [V] replaces the rule's r*(p, q): greedy decoding forms
    r* from other distributions than those of its walk.
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
    """One position of a draft with its rule: ``p`` [V] is the target, ``q`` [V] is what the first candidate was drawn
    from. ``law`` [V] replaces r*(p, q) if r* is formed from other distributions (greedy decoding), else None."""

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
    """The position after node ``at`` of ``draft``, which must have children; ``untempered`` as in ``verify.walk``."""
    candidates = draft.children(at)
    law = None
    if untempered is not None and isinstance(rule, TargetLawRule):
        wanted = rule.law(untempered(at), draft.untempered(candidates[0], len(p), p.device))
        law = one_hot(int(wanted.argmax()), len(p), p.device)
    alone = len(candidates) == 1 and draft.drawing != "deterministic"
    return RuledPosition(rule, p, draft.proposal(candidates[0], len(p), p.device), alone, law)
