"""Hands runs' records to the sink. A sink that fails loses that run, which its message says, never the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from core.jobs.endings import unbegun
from core.jobs.job import Job
from core.jobs.sink import RunSink
from core.records import Ended, Round, Started, Summary

LOG = logging.getLogger("speclens.jobs")


class Recorder:
    """``sink`` may be None: nothing is kept then. ``session`` names this process in the records."""

    def __init__(self, sink: RunSink | None, session: str) -> None:
        self._sink = sink
        self._session = session

    def submitted(self, group: Sequence[Job]) -> None:
        """Give these runs their rows; raises what the sink raises, and leaves none of them looking queued then."""
        if self._sink is None:
            return
        for place, job in enumerate(one for one in group if not one.warming):
            try:
                self._sink.submitted(job.run_id, job.spec, self._session, job.submitted_at)
            except Exception:
                for earlier in group[:place]:
                    self.ended(earlier, unbegun("cancelled"), None, datetime.now(UTC))
                raise

    def started(self, job: Job, started: Started, at: datetime) -> None:
        """The run's prompt is in the cache."""
        self._write(job, lambda sink: sink.started(job.run_id, started, at))

    def round(self, job: Job, round: Round) -> None:
        """A whole round."""
        self._write(job, lambda sink: sink.rounds(job.run_id, (round,)))

    def ended(self, job: Job, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """The run is over."""
        self._write(job, lambda sink: sink.ended(job.run_id, ended, summary, at))

    def _write(self, job: Job, write: Callable[[RunSink], None]) -> None:
        if self._sink is None or not job.stored or job.warming:
            return  # after a lost record the rest would be a run with a hole
        try:
            write(self._sink)
        except Exception as fault:
            LOG.exception("run %s is not stored", job.run_id)
            job.stored = False
            job.message = f"This run is not being kept: {fault}"
