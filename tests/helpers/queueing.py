"""Shorthand for tests of the queue: a sink in memory, an executor without a process, and waiting for a run's view."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import EngineFault, StorageUnavailable
from core.jobs.executors import STOPPED, Listen
from core.jobs.jobs import Jobs
from core.jobs.queue import JobView
from core.records import Ended, Round, Started, Summary
from core.types import PairSpec, RunSpec
from core.worker.open_run import Engine
from core.worker.protocol import Begin, Command, InvalidCommand, Loaded, Report, Shutdown
from core.worker.turns import ENGINE, LOADER, Loader, Turns
from tests.helpers.fakes_worker import PATIENCE_S

NEVER_S = 3600.0


@dataclass
class ListSink:
    """Keeps the records it receives, in order; ``breaks`` is the call that raises."""

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


class InlineExecutor:
    """An executor that decodes in a thread of this process, as the worker does in its own."""

    def __init__(self, loader: Loader | str = LOADER, engine: Engine | str = ENGINE) -> None:
        self._turns = Turns(loader, engine, self._report)
        self._thread = threading.Thread(target=self._turns.serve, name="engine", daemon=True)
        self._loaded: tuple[PairSpec, ...] = ()
        self._closed = False

    def connect(self, listen: Listen) -> None:
        self._listen = listen
        self._thread.start()

    def send(self, command: Command) -> None:
        if self._closed and isinstance(command, Begin):
            raise EngineFault(STOPPED)
        self._turns.send(command)

    def loaded(self) -> tuple[PairSpec, ...]:
        return self._loaded

    def kill(self, run_id: str, sentence: str) -> None:
        raise AssertionError("a thread cannot be killed")

    def close(self) -> None:
        self._closed = True
        self._turns.send(Shutdown())
        self._thread.join()

    def _report(self, report: Report) -> None:
        assert not isinstance(report, InvalidCommand)
        if isinstance(report, Loaded):
            self._loaded = report.pairs
        self._listen(report)
