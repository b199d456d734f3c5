"""The engine's interface to a model and its cache: open a slot, score drafts, keep a path, close.

Shapes: V = vocabulary (ids that can be emitted), n = candidates of one draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """One slot's part of a verification pass: the last committed token (``root``) and the n candidates after it.

    ``parents[i]`` is the candidate before candidate i, or ROOT for the root; parents come before their children.
    """

    slot: int
    root: int
    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()


class DeferredRow(Protocol):
    """The row of the last candidate, when computing it takes a pass of its own.

    Only the bonus of a wholly accepted chain reads this row, so the pass runs when that bonus is due, and not before.
    """

    def compute(self) -> Tensor:
        """Run the pass that scoring left out: logits [1, V] of the last candidate. Call once, before ``keep``."""
        ...


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw target logits of one slot: ``rows`` [1 + n, V] of the root and each candidate, in draft order.

    With a ``deferred`` row, ``rows`` is [n, V], without the last candidate's.
    """

    rows: Tensor
    deferred: DeferredRow | None = None


class Target(Protocol):
    """A model with a slot cache, scoring whole drafts."""

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Start a sequence: prefill ``tokens``, all committed tokens but the last."""
        ...

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """Score all slots in one pass; the scores are in the order of ``batch``."""
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates (numbers in the scored draft)."""
        ...

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        ...
