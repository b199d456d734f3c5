"""One run in the queue, and how it looks from outside at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from core.records import Ended, Round, RunStatus, Started, Summary
from core.types import RunSpec


@dataclass(frozen=True, slots=True)
class JobView:
    """A run at one moment. ``position``: n-th in the queue, 0 when it is not waiting. ``progress``: share of loading
    done in [0, 1], None when unknown. ``rounds``: whole rounds so far. Times are UTC; ``started_at`` is when it left
    the queue."""

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


@dataclass(eq=False, slots=True)
class Job:
    """A run as the queue keeps it. ``cancelling``: its end was asked for; ``stored``: the sink has all of it so far;
    ``warming``: it only loads its pair, so it is no run to be listed or kept."""

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
    stored: bool = True
    warming: bool = False

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
        )
