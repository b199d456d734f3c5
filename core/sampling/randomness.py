"""Per-request random streams: drafting, coins and redraws never share numbers (rules.md §2).

A stream is a protocol, so that tests inject coins. The same seed gives the same three streams alone, in a batch, or
beside other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Stream = Callable[[], float]
"""Returns the next u ∈ [0, 1)."""


@dataclass(frozen=True, slots=True)
class Streams:
    """``draft`` draws candidates, ``coin`` decides acceptance, ``redraw`` draws corrections and bonuses."""

    draft: Stream
    coin: Stream
    redraw: Stream

    @classmethod
    def seeded(cls, seed: int) -> Streams:
        """Three independent streams spawned from one seed (numpy ``SeedSequence``)."""
        children = np.random.SeedSequence(seed).spawn(3)
        return cls(*(np.random.Generator(np.random.PCG64(child)).random for child in children))
