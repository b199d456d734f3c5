"""Ids of runs: sortable by time of submission, unique across processes (ULID in lower case)."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

LENGTH = 26
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class RunIds:
    """Generator of run ids, each greater than the one before, even within a millisecond or if the clock steps back.

    48 bits of milliseconds since 1970, then 80 random bits; thread-safe.
    """

    def __init__(self, clock_ms: Callable[[], int] = _milliseconds) -> None:
        self._clock_ms = clock_ms
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> str:
        """A new id of :data:`LENGTH` characters."""
        with self._lock:
            fresh = (self._clock_ms() << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
            self._last = max(fresh, self._last + 1)
            number = self._last
        return "".join(_DIGITS[(number >> (5 * place)) & 31] for place in reversed(range(LENGTH)))


def is_run_id(text: str) -> bool:
    """Whether ``text`` has the form of a run id; ids in links are user input."""
    return len(text) == LENGTH and all(character in _DIGITS for character in text)
