"""A stored run's rounds as a replay needs them: the run's state after each, and its time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from core.records import Round, Started
from core.results.metrics import progress
from pages.ui.kit.runs import Shown, rounds
from pages.ui.kit.services import Services

KEEP = 2
"""Tapes kept in memory: people go back and forth within one run and between two."""

STRETCH = 500
"""Rounds read at once."""


@dataclass(frozen=True, slots=True)
class Tape:
    """Every round of a run, without the tables of top tokens (most of its memory): enough for text and metrics."""

    rounds: tuple[Round, ...]

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def begins_s(self) -> float:
        """When the replay begins: the first round's beginning, in seconds since the request was accepted."""
        return max(0.0, self.rounds[0].ended_at_s - self.rounds[0].wall_s) if self.rounds else 0.0

    def time_s(self, count: int) -> float:
        """When round ``count`` (the first is 1) was over; for 0 when the replay begins."""
        return self.rounds[count - 1].ended_at_s if count else self.begins_s

    def at(self, time_s: float) -> int:
        """How many rounds were over by then."""
        return bisect_right(self.rounds, time_s, key=lambda one: one.ended_at_s)

    def shown(self, run: Shown, count: int, moving: bool = False) -> Shown:
        """The run as a page showed it when ``count`` of its rounds were over; unless ``moving``, as if paused there."""
        if run.summary is None:
            return replace(run, status="running", total=0, paused=not moving)
        started = Started(0, run.summary.prompt_tokens, run.summary.prefill_s)
        then = progress(started, self.rounds[:count])
        return replace(run, status="running", total=count, summary=then, error=None, paused=not moving)


def of_run(services: Services, run: Shown) -> Tape:
    """The run's tape, from memory or read now."""
    return _read(_Source(services, run))


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Where a tape comes from. Equal for the same run of the same store, so that the memory below finds it."""

    services: Services
    run: Shown

    def __hash__(self) -> int:
        return hash((id(self.services), self.run.run_id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self._key == other._key

    @property
    def _key(self) -> tuple[int, str, int]:
        return id(self.services), self.run.run_id, self.run.total


@lru_cache(maxsize=KEEP)
def _read(source: _Source) -> Tape:
    found: list[Round] = []
    while len(found) < source.run.total:
        part: Sequence[Round] = rounds(source.services, source.run, len(found), STRETCH)
        found += [replace(one, positions=()) for one in part]
        if len(part) < STRETCH:
            break
    return Tape(tuple(found))
