"""How the CPU's compute threads wait for one another. No torch here: this must be set before torch is imported.

OpenMP's threads spin for milliseconds by default. On a machine that also serves pages to a browser, the thread that
they wait for then often has no core, and a pass takes eight times as long (docs/performance.md).
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

SPINS = 20_000
"""Iterations of the waiting loop before a thread sleeps: about the gap between two operations of a model. With 3,000 a
pass takes 30 % longer on an idle machine, with 300,000 five times as long on a busy one."""

CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def wait_politely(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make waiting threads sleep soon, unless the user's environment sets one of :data:`CHOSEN_BY`."""
    if not any(name in environment for name in CHOSEN_BY):
        environment["GOMP_SPINCOUNT"] = str(SPINS)
