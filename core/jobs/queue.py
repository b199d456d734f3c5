"""Jobs in their order, first those that are open, then those that wait; and how a job looks at one moment.

Nothing here is thread-safe: the lock of :class:`core.jobs.jobs.Jobs` guards it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from core.records import TERMINAL, Ended, Round, RunStatus, Started, Summary
from core.types import RunSpec
from core.worker.protocol import Cancel, Pause, Resume, RunCommand, Step


@dataclass(frozen=True, slots=True)
class JobView:
    """A run at one moment. ``position``: n-th in the queue, 0 when it is not waiting. ``progress``: share of loading
    done in [0, 1], None when unknown. ``rounds``: whole rounds so far. Times are UTC; ``started_at`` is when it left
    the queue. ``paused``: it makes no rounds but those it is stepped; a queued run will begin so."""

    run_id: str
    spec: RunSpec
    status: RunStatus
    position: int
    message: str
    progress: float | None
    started: Started | None
    rounds: int
    ended: Ended | None
    summary: Summary | None
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    paused: bool = False


@dataclass(eq=False, slots=True)
class Job:
    """A run as the queue keeps it. Seconds are those of the monotonic clock.

    ``load_only``: its purpose is to load its pair, so it is neither listed nor stored. ``stored``: the sink has all of
    its records so far. ``steps``: Steps that came while it waited. ``active_at_s``: when it last made progress or was
    commanded. ``cancelled_at_s``: since when its end is awaited, None when no Cancel was sent; ``why``: the reason as
    a sentence when no person asked for it.
    """

    run_id: str
    spec: RunSpec
    submitted_at: datetime
    status: RunStatus = "queued"
    message: str = ""
    progress: float | None = None
    started: Started | None = None
    rounds: list[Round] = field(default_factory=list)
    ended: Ended | None = None
    summary: Summary | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    load_only: bool = False
    stored: bool = True
    paused: bool = False
    steps: int = 0
    active_at_s: float = 0.0
    cancelled_at_s: float | None = None
    why: str | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    @property
    def cancelling(self) -> bool:
        """Whether its end was asked for."""
        return self.cancelled_at_s is not None

    @property
    def parked(self) -> bool:
        """Paused with its prompt in the cache: the device is free for others."""
        return self.paused and self.started is not None

    def apply(self, command: RunCommand) -> None:
        """Mark the job as the engine will treat its run."""
        self.active_at_s = time.monotonic()
        match command:
            case Cancel():
                self.cancelled_at_s = self.active_at_s
            case Pause():
                self.paused, self.steps = True, 0
            case Resume():
                self.paused, self.steps = False, 0
            case Step():
                self.steps += 1

    def add(self, event: Started | Round) -> None:
        """Take a record of the run."""
        self.active_at_s = time.monotonic()
        match event:
            case Started():
                self.started, self.progress = event, None
                if self.stored and not self.cancelling:
                    self.message = ""
            case Round():
                self.rounds.append(event)

    def end(self, status: RunStatus, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """Take the run's end."""
        self.status, self.ended, self.summary, self.ended_at = status, ended, summary, at
        self.progress, self.paused = None, False
        if self.stored:
            self.message = ""

    def view(self, position: int) -> JobView:
        """The job as it is shown now."""
        return JobView(
            run_id=self.run_id,
            spec=self.spec,
            status=self.status,
            position=position,
            message=self.message,
            progress=self.progress,
            started=self.started,
            rounds=len(self.rounds),
            ended=self.ended,
            summary=self.summary,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            paused=self.paused,
        )


class Queue:
    """Waiting jobs in groups, each group submitted together to begin together, and the open jobs, which the executor
    has. ``pause_limit_s``: how long a job may be parked; ``cancel_timeout_s``: how long it may take to end."""

    def __init__(self, pause_limit_s: float, cancel_timeout_s: float) -> None:
        self.pause_limit_s = pause_limit_s
        self.cancel_timeout_s = cancel_timeout_s
        self.open: dict[str, Job] = {}
        self._waiting: list[list[Job]] = []

    def __iter__(self) -> Iterator[Job]:
        """The open jobs, then the waiting ones."""
        yield from self.open.values()
        for group in self._waiting:
            yield from group

    def append(self, group: Sequence[Job]) -> None:
        """Let these wait behind all others."""
        self._waiting.append(list(group))

    def position(self, job: Job) -> int:
        """The job's group is the n-th that waits; 0 when the job doesn't wait."""
        return next((place for place, group in enumerate(self._waiting, 1) if job in group), 0)

    def remove(self, job: Job) -> bool:
        """Take out one waiting job; False when it doesn't wait."""
        for group in self._waiting:
            if job in group:
                group.remove(job)
                self._waiting = [group for group in self._waiting if group]
                return True
        return False

    def clear(self) -> list[Job]:
        """Take out all waiting jobs."""
        waiting, self._waiting = [job for group in self._waiting for job in group], []
        return waiting

    @property
    def ready(self) -> bool:
        """Whether a group waits and the device is free for it."""
        return bool(self._waiting) and all(job.parked for job in self.open.values())

    def begin(self) -> list[Job]:
        """Open the first waiting group if the device is free; its jobs."""
        group = self._waiting.pop(0) if self.ready else []
        for job in group:
            job.status, job.started_at = "running", datetime.now(UTC)
            self.open[job.run_id] = job
        return group

    def left_s(self) -> float | None:
        """Seconds until the next time limit of an open job is reached, at least 0; None when none runs."""
        due = [job.active_at_s + self.pause_limit_s for job in self._parked()]
        due += [at + self.cancel_timeout_s for job in self.open.values() if (at := job.cancelled_at_s) is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def parked_too_long(self) -> list[Job]:
        """The jobs that have been parked beyond the limit."""
        now = time.monotonic()
        return [job for job in self._parked() if job.active_at_s + self.pause_limit_s <= now]

    def stuck(self) -> list[Job]:
        """The cancelled jobs that must be ended by force: one has not ended in time, and no other job is at work.

        A job at work may keep the device for long (loading weights), and the cancelled one ends after it. Either way
        the time limit of jobs that are late begins anew.
        """
        now = time.monotonic()
        cancelled = [job for job in self.open.values() if job.cancelled_at_s is not None]
        late = [job for job in cancelled if (job.cancelled_at_s or 0.0) + self.cancel_timeout_s <= now]
        for job in late:
            job.cancelled_at_s = now
        at_work = any(not job.cancelling and not job.parked for job in self.open.values())
        return cancelled if late and not at_work else []

    def _parked(self) -> list[Job]:
        return [job for job in self.open.values() if job.parked and not job.cancelling]
