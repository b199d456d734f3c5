"""A stored run's rounds for a replay: the run's state after each round, and the round's time."""

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
"""Tapes kept in memory: people go back and forth within a run and between two runs."""

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
        """Start of the replay: the start of the first round, in seconds since the request was accepted."""
        return max(0.0, self.rounds[0].ended_at_s - self.rounds[0].wall_s) if self.rounds else 0.0

    def time_s(self, count: int) -> float:
        """End of round ``count`` (the first is 1), in the same seconds; for 0 the start of the replay."""
        return self.rounds[count - 1].ended_at_s if count else self.begins_s

    def at(self, time_s: float) -> int:
        """Number of rounds that were over by ``time_s``."""
        return bisect_right(self.rounds, time_s, key=lambda one: one.ended_at_s)

    def shown(self, run: Shown, count: int, moving: bool = False) -> Shown:
        """The run as it looked after ``count`` of its rounds; unless ``moving``, as if paused there."""
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
    """Source of a tape; equal for the same run of the same store, so that it can be a cache key."""

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
