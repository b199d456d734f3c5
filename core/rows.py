"""The target's rows of one round: processed distributions p of the positions that a walk visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from core.distributions import Distributions
from core.errors import EngineFault
from core.trees import Draft, logits_fault


@dataclass(slots=True)
class Rows:
    """Raw target ``logits`` [1 + n, V] after the root and each node of ``draft``; ``prefix``: all committed tokens.

    ``visited`` holds p [V] of every position asked for, in the order they were.
    """

    draft: Draft
    logits: Tensor
    distributions: Distributions
    prefix: Sequence[int]
    round: int
    visited: dict[int, Tensor] = field(default_factory=dict)

    def target(self, node: int) -> Tensor:
        """p [V] after ``node``. Raises :class:`EngineFault` on a NaN or infinite row, naming round and node."""
        if fault := self.draft.fault or logits_fault(self.logits[node + 1], "target", node):
            raise EngineFault(f"round {self.round}: {fault}.")
        self.visited[node] = self.distributions.target(self.logits[node + 1], self._before(node))
        return self.visited[node]

    def untempered(self, node: int) -> Tensor:
        """The target's probabilities [V] after ``node`` without temperature and truncation."""
        return self.distributions.growth(self.logits[node + 1], self._before(node))

    def _before(self, node: int) -> list[int]:
        return [*self.prefix, *(self.draft.tokens[i] for i in self.draft.path(node))]
