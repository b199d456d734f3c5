"""Random streams per request: drafting, coins and redraws never share numbers (rules.md §2).

A stream is any callable, so tests can inject coins. The same seed gives the same three streams whether a request runs
alone, in a batch, or beside other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Stream = Callable[[], float]
"""Function that returns the next u ∈ [0, 1)."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of one request: ``draft`` for candidates, ``coin`` for tests, ``redraw`` for corrections and bonuses."""

    draft: Stream
    coin: Stream
    redraw: Stream

    @classmethod
    def seeded(cls, seed: int) -> Streams:
        """Three independent streams spawned from one seed (numpy ``SeedSequence``)."""
        children = np.random.SeedSequence(seed).spawn(3)
        return cls(*(np.random.Generator(np.random.PCG64(child)).random for child in children))
