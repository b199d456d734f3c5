"""What a drafter is: it proposes candidates for several slots at once and follows the accepted paths."""

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
    """What a drafter needs to propose candidates for one slot.

    ``prefix``: all committed tokens, the root last; ``depth``: the longest path, in tokens, that the limits of the
    request and of the context leave room for.
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
    """Proposes candidates. Slots are opened with the prompt and kept in step with what verification committed."""

    recomputed_share: float | None
    """Share of the target's layers that verification computes again for self-speculation; None for other drafters."""

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Start a sequence; ``tokens`` are all but the last committed one."""
        ...

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """A draft per request, in order; empty where nothing can be proposed."""
        ...

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Verification committed these nodes of the slot's last draft."""
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
