"""One run in the queue, and how it looks from outside at one moment."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime

from core.records import Ended, Round, RunStatus, Started, Summary
from core.types import RunSpec


@dataclass(frozen=True, slots=True)
class JobView:
    """A run at one moment. ``position``: n-th in the queue, 0 when it is not waiting. ``progress``: share of loading
    done in [0, 1], None when unknown. ``rounds``: whole rounds so far. Times are UTC; ``started_at`` is when it left
    the queue. ``paused``: it makes no more rounds than it is told to step; when queued, it will begin so."""

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
    """A run as the queue keeps it. ``cancelling``: its end was asked for; ``why``: a sentence if not by a person.

    ``stored``: the sink has all of it so far. ``steps``: rounds to step that were asked for in the queue.
    ``idle_since``: when it last did or was asked for anything, seconds of the monotonic clock. ``warming``: it only
    loads its pair, so it is no run to be listed or kept.
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
    cancelling: bool = False
    why: str | None = None
    stored: bool = True
    paused: bool = False
    steps: int = 0
    idle_since: float = 0.0
    warming: bool = False

    @property
    def yields(self) -> bool:
        """Whether it leaves the device to others: it stands, its prompt in the cache."""
        return self.paused and self.started is not None

    def pause(self, paused: bool) -> None:
        """It is paused from now on, or not; asked for again, it is a step, which counts while it waits."""
        self.steps = self.steps + 1 if self.paused and paused else 0
        self.paused, self.idle_since = paused, time.monotonic()

    def start(self, started: Started) -> None:
        """Its prompt is in the cache."""
        self.started, self.progress, self.idle_since = started, None, time.monotonic()
        if self.stored and not self.cancelling:
            self.message = ""

    def add(self, round: Round) -> None:
        """It made a round."""
        self.rounds.append(round)
        self.idle_since = time.monotonic()

    def end(self, status: RunStatus, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """It is over."""
        self.status, self.ended, self.summary, self.ended_at = status, ended, summary, at
        self.progress, self.paused = None, False
        if self.stored:
            self.message = ""

    def view(self, position: int) -> JobView:
        """What the outside sees of it."""
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
