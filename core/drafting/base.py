"""What a drafter is: it proposes candidates for several slots at once and follows the accepted paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from core.drafting.draft import Draft
from core.drafting.growers import Grower, grower
from core.sampling.distributions import Distributions
from core.sampling.randomness import Stream
from core.types import ShapeSpec


@dataclass(frozen=True, slots=True)
class Want:
    """One slot's wish for candidates. ``prefix``: all committed tokens, the root last; ``depth``: longest path that
    limits leave room for, in tokens."""

    slot: int
    prefix: Sequence[int]
    shape: ShapeSpec
    depth: int
    distributions: Distributions
    stream: Stream

    def grower(self) -> Grower:
        """The grower of this wish's shape."""
        return grower(self.shape, self.depth, self.distributions, self.prefix, self.stream)


class Drafter(Protocol):
    """Proposes candidates. Slots are opened with the prompt and kept in step with what verification committed."""

    recomputed_share: float | None
    """Share of the target's layers that verification computes again for self-speculation; None for other drafters."""

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Start a sequence; ``tokens`` are all but the last committed one."""
        ...

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """A draft per wish, in order; empty where nothing can be proposed."""
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Verification committed these nodes of the slot's last draft."""
        ...

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        ...


Score = Callable[[Mapping[int, Sequence[int]]], Mapping[int, Sequence[Tensor]]]
"""Logits [V] of the frontier nodes of each slot: {slot: nodes} → {slot: rows}."""


def grow_together(growers: Mapping[int, Grower], score: Score) -> None:
    """Expand all slots' drafts step by step, one drafter pass per step."""
    while frontier := {slot: nodes for slot, one in growers.items() if (nodes := one.frontier())}:
        for slot, rows in score(frontier).items():
            growers[slot].grow(rows)


class NoDraft:
    """Plain decoding: every draft is empty."""

    recomputed_share: float | None = None

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Nothing to keep."""

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """Empty drafts."""
        return [Draft() for _ in wants]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Nothing to keep."""

    def close(self, slot: int) -> None:
        """Nothing to forget."""
