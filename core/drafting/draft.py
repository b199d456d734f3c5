"""A round's candidates as a tree.

In a chain, the parent of node i is i − 1; in plain decoding the draft is empty. Parents come before their children.
Shapes: n candidates, V = vocabulary.
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
"""How siblings were chosen, which decides what q is while they are tested (rules.md §2)."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Candidates of one verification pass, built by :meth:`chosen`, :meth:`drawn` or :meth:`siblings`.

    ``q[i]`` is what candidate i was drawn from: the same tensor object (siblings share it), or certainty of its token
    if it was chosen. ``score[i]`` is the drafter's own probability, never used in a ratio; None if it has none.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: tuple[Distribution, ...] = ()
    score: tuple[float | None, ...] = ()
    drawing: Drawing = "deterministic"
    fault: str | None = None
    """Error sentence of the run if the drafter's logits broke while the draft grew, else None."""
    growth: tuple[Tensor, ...] | None = None
    """The drafter's own untempered probabilities [V] at each candidate's position (siblings share them); kept only
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
        """Draft of deterministically chosen candidates: each q is certain."""
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
        """Draft of candidates drawn from ``q``, one row [V] each."""
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
        """Draft of siblings after the root, drawn from q [V]; q is ignored if ``drawing`` is deterministic."""
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
        """The drafter's own probabilities [V] at the position of ``node``; one-hot for a drafter that has none."""
        return one_hot(self.tokens[node], vocab, device) if self.growth is None else self.growth[node]

    def offered(self, node: int, before: Tensor) -> Tensor:
        """q [V] that ``node`` is tested against; ``before`` is what its earlier siblings' rejections left of q."""
        return self.proposal(node, len(before), before.device) if self.drawing == "deterministic" else before

    def left_of(self, q: Tensor, node: int) -> Tensor:
        """q [V] for the next sibling once ``node``, drawn from ``q``, is rejected."""
        return without(q, self.tokens[node]) if self.drawing == "without_replacement" else q

    def proposal(self, node: int, vocab: int, device: torch.device) -> Tensor:
        """q [V] that ``node`` was drawn from, before any sibling was tried."""
        return self.q[node].vector(vocab, device)
