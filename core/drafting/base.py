"""The drafter's interface: propose candidates for several slots at once, then keep the accepted paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.drafting.draft import Draft
from core.drafting.growers import Grower, grower
from core.sampling.distributions import Distributions
from core.sampling.randomness import Stream
from core.types import ShapeSpec


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Request for candidates for one slot.

    ``prefix``: all committed tokens, the root last; ``depth``: the longest path, in tokens, that the limits of the
    request and the context allow.
    """

    slot: int
    prefix: Sequence[int]
    shape: ShapeSpec
    depth: int
    distributions: Distributions
    stream: Stream

    def grower(self) -> Grower:
        """A fresh grower of this shape."""
        return grower(self.shape, self.depth, self.distributions, self.prefix, self.stream)


class Drafter(Protocol):
    """Proposer of candidates. Slots are opened with the prompt; :meth:`keep` follows what verification committed."""

    recomputed_share: float | None
    """Self-speculation: share of the target's layers that verification computes again; None for other drafters."""

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Start a sequence; ``tokens`` are all committed tokens but the last."""
        ...

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """A draft per request, in order; empty where nothing can be proposed."""
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Keep the nodes of the slot's last draft that verification committed."""
        ...

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        ...


class NoDraft:
    """Plain decoding: every draft is empty."""

    recomputed_share: float | None = None

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Nothing to keep."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Empty drafts."""
        return [Draft() for _ in requests]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Nothing to keep."""

    def close(self, slot: int) -> None:
        """Nothing to forget."""
