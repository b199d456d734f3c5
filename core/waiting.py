"""How the CPU's compute threads wait for one another. No torch here: it must be settled before torch is imported.

OpenMP's threads spin for milliseconds by default. On a machine that also serves pages to a browser the thread they wait
for is then often the one that has no core, and a pass takes eight times as long (docs/performance.md).
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SPINS = 20_000
"""Turns of the waiting loop before a thread sleeps: about the gap between two operations of a model. With 3,000 turns a
pass takes 30 % longer where nothing else runs, with 300,000 five times as long where something does."""

CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def wait_politely(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let waiting threads sleep soon, unless the person who started the process has chosen otherwise."""
    if not any(name in environment for name in CHOSEN_BY):
        environment["GOMP_SPINCOUNT"] = str(SPINS)
