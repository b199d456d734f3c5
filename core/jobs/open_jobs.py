"""The jobs that the executor has, and what their pauses mean: the device is free for others, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator

from core.jobs.job import Job


class OpenJobs:
    """In the order in which they began. ``pause_limit_s``: seconds that a paused one may stand. Not thread-safe."""

    def __init__(self, pause_limit_s: float) -> None:
        self.pause_limit_s = pause_limit_s
        self._jobs: dict[str, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def add(self, job: Job) -> None:
        """It has left the queue."""
        self._jobs[job.run_id] = job

    def get(self, run_id: str) -> Job | None:
        """The job, unless it is over or has not begun."""
        return self._jobs.get(run_id)

    def remove(self, job: Job) -> None:
        """It is over; nothing for one that never began."""
        self._jobs.pop(job.run_id, None)

    @property
    def at_work(self) -> bool:
        """Whether the device is taken."""
        return not all(job.yields for job in self)

    def left_s(self) -> float | None:
        """Seconds until one has been paused too long: 0 when one has, None when none is paused."""
        since = [job.idle_since for job in self._standing()]
        return max(0.0, min(since) + self.pause_limit_s - time.monotonic()) if since else None

    def overdue(self) -> list[Job]:
        """Those that have been paused too long."""
        now = time.monotonic()
        return [job for job in self._standing() if job.idle_since + self.pause_limit_s <= now]

    def _standing(self) -> list[Job]:
        return [job for job in self if job.yields and not job.cancelling]
