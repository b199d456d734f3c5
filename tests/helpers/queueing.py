"""Shorthand for tests of the queue: a sink that keeps what it is told, and waiting for what a run's view shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import StorageUnavailable
from core.jobs.jobs import Jobs, JobView
from core.records import Ended, Round, Started, Summary
from core.types import RunSpec
from tests.helpers.fakes_worker import PATIENCE_S

NEVER_S = 3600.0


@dataclass
class ListSink:
    """Keeps what it is told, in order; ``breaks`` is the call that raises."""

    calls: list[tuple[str, str, object]] = field(default_factory=list)
    times: dict[tuple[str, str], datetime] = field(default_factory=dict)
    breaks: str = ""

    def _note(self, call: str, run_id: str, what: object, at: datetime | None = None) -> None:
        if call == self.breaks:
            raise StorageUnavailable("The disk is full: make room.")
        self.calls.append((call, run_id, what))
        if at is not None:
            self.times[call, run_id] = at

    def submitted(self, run_id: str, spec: RunSpec, session: str, at: datetime) -> None:
        self._note("submitted", run_id, (spec, session), at)

    def started(self, run_id: str, started: Started, at: datetime) -> None:
        self._note("started", run_id, started, at)

    def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
        self._note("rounds", run_id, tuple(rounds))

    def ended(self, run_id: str, ended: Ended, summary: Summary | None, at: datetime) -> None:
        self._note("ended", run_id, (ended, summary), at)

    def of(self, run_id: str) -> list[str]:
        return [call for call, owner, _ in self.calls if owner == run_id]


def finished(jobs: Jobs, run_id: str) -> JobView:
    return reached(jobs, run_id, lambda view: view.status not in ("queued", "running"))


def reached(jobs: Jobs, run_id: str, until: Callable[[JobView], bool]) -> JobView:
    view = jobs.wait(run_id, until, PATIENCE_S)
    assert view is not None and until(view), f"this never happened to {view}"
    return view
