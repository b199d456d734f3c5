"""What the engine knows of a model and its cache: open a slot, score drafts, keep a path, close.

Shapes: V = vocabulary (ids that are emitted), n = candidates of one draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Candidates:
    """One slot's part of a verification pass: the last committed token (``root``) and the n candidates after it.

    ``parents[i]`` is the candidate before candidate i, ROOT where that is the root; parents come before their children.
    """

    slot: int
    root: int
    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()


class DeferredRow(Protocol):
    """The row of the last candidate where it costs a pass of its own.

    Only the bonus of a wholly accepted chain reads it, so the pass runs when that bonus is due, and not before.
    """

    def compute(self) -> Tensor:
        """Logits [1, V] of the last candidate, by the pass that scoring left out. Call it once, before ``keep``."""
        ...


@dataclass(frozen=True, slots=True)
class Scores:
    """Raw target logits of one slot: ``rows`` [1 + n, V] of the root and each candidate, in draft order.

    With a ``deferred`` row they are [n, V], the last candidate's left out.
    """

    rows: Tensor
    deferred: DeferredRow | None = None


class Target(Protocol):
    """A model with a slot cache, scoring whole drafts."""

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Start a sequence: ``tokens`` (all but the last committed one) go into the cache."""
        ...

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """One pass over all slots, the scores in the order of ``batch``."""
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates (numbers in the scored draft)."""
        ...

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        ...
