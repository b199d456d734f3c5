"""Block verification: a whole chain is verified at once, losslessly (Sun et al. 2024; rules.md §2).

Token verification stops at the first candidate that fails its own test; block verification keeps the longest prefix
whose joint weight passes, so it accepts at least as many tokens on average for the same p and q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from core.drafting.draft import Draft
from core.records import ROOT, Trial
from core.sampling.probability import norm_or


@dataclass(frozen=True, slots=True)
class ChainBlock:
    """Quantities of the rule before any coin: ``weights`` wᵢ for i = 0 … γ, and ``accept`` hᵢ for i = 1 … γ.

    For i = 0 … γ−1, ``p[i]`` [V] is the target after i candidates, and candidate i + 1 was drawn from ``q[i]`` [V].
    """

    p: Sequence[Tensor]
    q: Sequence[Tensor]
    weights: tuple[float, ...]
    accept: tuple[float, ...]

    def residual(self, length: int) -> Tensor:
        """norm (w·p − q)₊ after ``length`` < γ accepted candidates; p if nothing is left."""
        return norm_or(_excess(self.weights[length], self.p[length], self.q[length]), self.p[length])


def block_of(draft: Draft, target: Callable[[int], Tensor]) -> ChainBlock:
    """The block of a chain ``draft``; ``target`` returns p [V] after a node (ROOT: after the committed prefix).

    Raises ValueError for a draft that branches, since only a chain is a block.
    """
    size = len(draft.tokens)
    if draft.parents != tuple(range(ROOT, size - 1)):
        raise ValueError("block verification judges a chain: this draft branches")
    p = [target(node) for node in range(ROOT, size - 1)]
    q = [draft.proposal(node, len(row), row.device) for node, row in enumerate(p)]
    weights = [1.0]
    for token, p_row, q_row in zip(draft.tokens, p, q, strict=True):
        weights.append(min(weights[-1] * float(p_row[token]) / float(q_row[token]), 1.0))
    accept = [_accept(weights[i], p[i], q[i]) for i in range(1, size)]
    return ChainBlock(p, q, tuple(weights), (*accept, *weights[size:]) if size else ())


def _accept(weight: float, p: Tensor, q: Tensor) -> float:
    """hᵢ = sᵢ/(sᵢ + 1 − wᵢ), sᵢ = Σ(wᵢ·pᵢ − qᵢ)₊; 0/0 is 1."""
    left = float(_excess(weight, p, q).sum())
    below = left + 1.0 - weight
    return left / below if below > 0.0 else 1.0


def _excess(weight: float, p: Tensor, q: Tensor) -> Tensor:
    return (weight * p - q).clamp_min(0.0)


def toss(block: ChainBlock, draft: Draft, coin: Callable[[], float]) -> tuple[int, tuple[Trial, ...]]:
    """Toss one coin per candidate; return τ, the largest i with uᵢ < hᵢ (0 if none), and the trials.

    A trial is ``accepted`` if its candidate is among the first τ, whatever its own coin.
    """
    coins = [coin() for _ in draft.tokens]
    passed = [place for place, (u, h) in enumerate(zip(coins, block.accept, strict=True), start=1) if u < h]
    length = max(passed, default=0)
    trials = tuple(
        Trial(
            node=node,
            token=token,
            p=float(block.p[node][token]),
            q=float(block.q[node][token]),
            accept_prob=block.accept[node],
            u=coins[node],
            accepted=node < length,
        )
        for node, token in enumerate(draft.tokens)
    )
    return length, trials
