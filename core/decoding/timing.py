"""Clocks of a run: stage times read at device-synchronised borders, and a clock that can be suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["draft", "verify", "state", "other"]


@dataclass(slots=True)
class RunClock:
    """Clock of the seconds since the request was accepted, without the time that the consumer held the generator."""

    read: Callable[[], float]
    _accepted: float = field(init=False)
    _suspended: float = 0.0

    def __post_init__(self) -> None:
        self._accepted = self.read()

    def now(self) -> float:
        """Seconds of the run's own time."""
        return self.read() - self._accepted - self._suspended

    def forget(self, since: float) -> float:
        """Exclude the time ``since`` a reading of this clock from the run's; return it in seconds."""
        passed = self.now() - since
        self._suspended += passed
        return passed

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Exclude the time of the body from the run's."""
        start = self.read()
        try:
            yield
        finally:
            self._suspended += self.read() - start


@dataclass(slots=True)
class Laps:
    """Stage times of one round; each border is one clock read, so the stages add up to the wall time.

    A round begins where the last one (or the prompts) ended: what happened in between is ``other``.
    """

    clock: RunClock
    start: float
    seconds: dict[Stage, float] = field(
        default_factory=lambda: {
            "draft": 0.0,
            "verify": 0.0,
            "state": 0.0,
            "other": 0.0,
        }
    )
    measuring: float = 0.0
    """Seconds spent measuring distortion, in no stage and not in the run's time."""
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.start
        self.lap("other")

    def lap(self, stage: Stage) -> None:
        """Add the time since the last border to ``stage``."""
        now = self.clock.now()
        self.seconds[stage] += now - self.last
        self.last = now

    def measured(self) -> None:
        """Book the time since the last border as measuring distortion, outside the run's time: runs that measure and
        plain runs, which have nothing to measure, are compared by what decoding costs."""
        self.measuring += self.clock.forget(self.last)

    @property
    def wall(self) -> float:
        """Seconds from the first border to the last."""
        return self.last - self.start
