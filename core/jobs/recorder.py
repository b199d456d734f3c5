"""Passes runs' records to the sink. A sink that fails loses that run, as its message then says, never the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from core.jobs.queue import Job
from core.records import Ended, Round, Started, Summary, ended_early
from core.types import RunSpec

LOG = logging.getLogger("speclens.jobs")


class RunSink(Protocol):
    """Takes a run's records in order: submitted, started, rounds (whole ones, in batches), ended.

    ``storage.store.Store`` is one; tests use lists. Calls return at once: writing happens elsewhere, never on the
    decoding path. ``started`` and ``rounds`` may be missing (a run cancelled in the queue); ``ended`` comes exactly
    once unless the process dies.
    """

    def submitted(self, run_id: str, spec: RunSpec, session: str, at: datetime) -> None:
        """The run exists, queued, from this moment. ``session`` names the app process that took it."""
        ...

    def started(self, run_id: str, started: Started, at: datetime) -> None:
        """The run's prompt is in the cache; it left the queue at this moment."""
        ...

    def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
        """Whole rounds, in order of index."""
        ...

    def ended(self, run_id: str, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """The run is over; ``summary`` is None when it never started."""
        ...


class Recorder:
    """``sink`` may be None: nothing is stored then. ``session`` names this process in the records."""

    def __init__(self, sink: RunSink | None, session: str) -> None:
        self._sink = sink
        self._session = session

    def submitted(self, group: Sequence[Job]) -> None:
        """Give these runs their rows. Raises what the sink raises, after ending the rows already made."""
        if self._sink is None:
            return
        for place, job in enumerate(group):
            if job.load_only:
                continue
            try:
                self._sink.submitted(job.run_id, job.spec, self._session, job.submitted_at)
            except Exception:
                for earlier in group[:place]:
                    self.ended(earlier, ended_early((), "cancelled"), None, datetime.now(UTC))
                raise

    def started(self, job: Job, started: Started, at: datetime) -> None:
        """Record that the run's prompt is in the cache."""
        self._write(job, lambda sink: sink.started(job.run_id, started, at))

    def round(self, job: Job, round: Round) -> None:
        """Record a whole round."""
        self._write(job, lambda sink: sink.rounds(job.run_id, (round,)))

    def ended(self, job: Job, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """Record that the run is over."""
        self._write(job, lambda sink: sink.ended(job.run_id, ended, summary, at))

    def _write(self, job: Job, write: Callable[[RunSink], None]) -> None:
        if self._sink is None or not job.stored or job.load_only:
            return  # after a lost record the stored run would have a hole
        try:
            write(self._sink)
        except Exception as fault:
            LOG.exception("run %s is not stored", job.run_id)
            job.stored = False
            job.message = f"This run is not being kept: {fault}"
