"""One position of a draft as its rule meets it: p, the q of its candidates, and the law that it walks toward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from core.decoding.siblings import Siblings, siblings
from core.drafting.draft import Draft
from core.rules.target_law import TargetLawRule
from core.rules.token_rule import TokenRule
from core.sampling.probability import one_hot


@dataclass(frozen=True, slots=True)
class RuledPosition:
    """``p`` [V] the target, ``q`` [V] what the first candidate was drawn from; ``law`` [V] stands in for the rule's
    r*(p, q) where that is not formed from them (greedy decoding), else None."""

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
