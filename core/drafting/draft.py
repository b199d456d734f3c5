"""A round's candidates as a tree.

A chain is a tree with parents i − 1; plain decoding is the empty draft. Parents come before their children. Shapes:
n candidates, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from core.records import ROOT
from core.sampling.probability import Certain, Distribution, Law, one_hot, without

Drawing = Literal["deterministic", "with_replacement", "without_replacement"]
"""How siblings were chosen: it decides what q is while they are tested (rules.md §2)."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Candidates of one verification pass; :meth:`chosen`, :meth:`drawn` and :meth:`siblings` make them.

    ``q[i]`` is what candidate i was drawn from: the very tensor (siblings share it), or certainty of its token where
    it was chosen. ``score[i]`` is the drafter's own probability, never used in a ratio; None where it has none.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: tuple[Distribution, ...] = ()
    score: tuple[float | None, ...] = ()
    drawing: Drawing = "deterministic"
    fault: str | None = None
    """The sentence with which the run fails, where the drafter's logits broke while the draft grew."""
    growth: tuple[Tensor, ...] | None = None
    """The drafter's own untempered probabilities [V] where each candidate was chosen (siblings share them); kept only
    for greedy rules with a law of their own."""

    @classmethod
    def chosen(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        score: Sequence[float | None] | None = None,
        fault: str | None = None,
        growth: Sequence[Tensor] | None = None,
    ) -> Draft:
        """Candidates that were chosen deterministically: each q is certain."""
        return cls(
            tuple(tokens),
            tuple(parents),
            tuple(Certain(token) for token in tokens),
            (None,) * len(tokens) if score is None else tuple(score),
            "deterministic",
            fault,
            None if growth is None else tuple(growth),
        )

    @classmethod
    def drawn(
        cls,
        tokens: Sequence[int],
        parents: Sequence[int],
        q: Sequence[Tensor],
        score: Sequence[float | None] | None = None,
        drawing: Drawing = "with_replacement",
        fault: str | None = None,
        growth: Sequence[Tensor] | None = None,
    ) -> Draft:
        """Candidates drawn from ``q``, a row [V] each."""
        return cls(
            tuple(tokens),
            tuple(parents),
            tuple(Law(row) for row in q),
            (None,) * len(tokens) if score is None else tuple(score),
            drawing,
            fault,
            None if growth is None else tuple(growth),
        )

    @classmethod
    def siblings(cls, tokens: Sequence[int], q: Tensor, drawing: Drawing) -> Draft:
        """Candidates after the root alone, drawn from q [V]; deterministic ones were chosen, whatever q is."""
        parents = (ROOT,) * len(tokens)
        if drawing == "deterministic":
            return cls.chosen(tokens, parents)
        return cls.drawn(tokens, parents, (q,) * len(tokens), drawing=drawing)

    def children(self, node: int) -> list[int]:
        """Candidates after ``node`` (ROOT: after the committed prefix), in the order they are tested."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to ``node``, included; empty for ROOT."""
        path = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def depth(self, node: int) -> int:
        """Tokens from the root down to ``node``."""
        return len(self.path(node))

    def untempered(self, node: int, vocab: int, device: torch.device) -> Tensor:
        """The drafter's own probabilities [V] where ``node`` was chosen; one-hot for a drafter that has none."""
        return one_hot(self.tokens[node], vocab, device) if self.growth is None else self.growth[node]

    def offered(self, node: int, before: Tensor) -> Tensor:
        """q [V] that ``node`` is tested against; ``before`` is what is left of its siblings' q."""
        return self.proposal(node, len(before), before.device) if self.drawing == "deterministic" else before

    def left_of(self, q: Tensor, node: int) -> Tensor:
        """q [V] for the next sibling after ``node``, drawn from q, was rejected."""
        return without(q, self.tokens[node]) if self.drawing == "without_replacement" else q

    def proposal(self, node: int, vocab: int, device: torch.device) -> Tensor:
        """q [V] that ``node`` was drawn from, before any sibling was tried."""
        return self.q[node].vector(vocab, device)
