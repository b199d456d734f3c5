"""The queue in front of the engine: runs are submitted, watched and cancelled here, from any thread.

One run is decoded at a time, in the order of submission: the executor owns the device. A run's records go to the sink
first and are seen here afterwards, so that whoever sees a run ended can find it in the store once that is flushed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from core.engine_process import ProcessExecutor
from core.errors import EngineFault
from core.executors import Executor, WorkerLost
from core.job import Job, JobView
from core.metrics import summarise, violations
from core.protocol import Happening, Loading, RunRound, RunStarted
from core.records import TERMINAL, Ended, Round, RunStatus, StopReason, Summary
from core.run_id import RunIds
from core.sink import RunSink
from core.types import PairSpec, RunSpec
from core.warming import Held, warm_up

__all__ = ["KEEP_ROUNDS", "KEEP_RUNS", "JobView", "Jobs"]

LOG = logging.getLogger("speclens.jobs")

KEEP_RUNS = 50
"""Ended runs that stay in memory; older ones are in the store."""

KEEP_ROUNDS = 5_000
"""Rounds that ended runs may hold in memory together (chain:4: 17 KiB each): the oldest runs go, the latest stays."""


class Jobs:
    """Runs of one app process. ``sink`` takes their records, ``session`` names this process in them.

    ``executor`` decodes (default: core.worker in its own process, by ``worker_command`` if given). Close it when done.
    """

    def __init__(
        self,
        sink: RunSink | None,
        session: str,
        worker_command: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
    ) -> None:
        self._sink = sink
        self._session = session
        self._executor = executor or ProcessExecutor(worker_command)
        self._ids = RunIds()
        self._submitting = threading.Lock()
        self._changed = threading.Condition()  # guards everything below
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._running: Job | None = None
        self._held = Held()
        self._load: Job | None = None
        self._over: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False

    # -- what people ask for

    def submit(self, spec: RunSpec) -> str:
        """Queue a run; its id. Raises EngineFault after close, StorageUnavailable when the sink refuses it."""
        return self._enter(spec, warming=False).run_id

    def _enter(self, spec: RunSpec, warming: bool) -> Job:
        with self._submitting:  # ids, the sink's rows and the queue have one order
            with self._changed:
                if self._closing:
                    raise EngineFault("The engine is stopped and takes no more runs: start the app again.")
            job = Job(self._ids.next(), spec, datetime.now(UTC), warming=warming)
            if self._sink is not None and not warming:
                self._sink.submitted(job.run_id, spec, self._session, job.submitted_at)
            with self._changed:
                self._jobs[job.run_id] = job
                self._queue.append(job)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._drive, name="jobs", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        return job

    def load(self, pair: PairSpec) -> str:
        """Queue the loading of a pair (core/warming.py); its id, to :meth:`view`, :meth:`wait` for and :meth:`cancel`.

        It is no run: neither listed nor stored. A load of the same pair that isn't over yet is not asked for twice.
        Raises EngineFault after close.
        """
        with self._changed:
            load = self._load
            if load is not None and load.status not in TERMINAL and load.spec.pair == pair and not load.cancelling:
                return load.run_id
        load = self._enter(warm_up(pair), warming=True)
        with self._changed:
            self._load = load
        return load.run_id

    def loading(self) -> JobView | None:
        """The load asked for last: waiting, going on or over; None before the first."""
        with self._changed:
            return None if self._load is None else self._view(self._load)

    def loaded(self) -> tuple[PairSpec, ...]:
        """The pairs in the engine's memory now."""
        alive = self._executor.alive()
        with self._changed:
            return self._held.pairs if alive else ()

    def view(self, run_id: str) -> JobView | None:
        """The run now; None when it is unknown or has left memory."""
        with self._changed:
            job = self._jobs.get(run_id)
            return None if job is None else self._view(job)

    def rounds(self, run_id: str, start: int = 0) -> list[Round]:
        """Whole rounds from index ``start`` on, none for an unknown run."""
        with self._changed:
            job = self._jobs.get(run_id)
            return [] if job is None else job.rounds[max(0, start) :]

    def active(self) -> list[JobView]:
        """The running and the queued runs, in order."""
        with self._changed:
            running = [] if self._running is None else [self._running]
            return [self._view(job) for job in (*running, *self._queue) if not job.warming]

    def cancel(self, run_id: str) -> bool:
        """End a queued run now, a running one within a round. False when there is nothing to cancel (any more)."""
        with self._changed:
            job = self._jobs.get(run_id)
            if job is None or job.status in TERMINAL or job.cancelling:
                return False
            job.cancelling = True
            waiting = job in self._queue
            if waiting:
                self._queue.remove(job)
            job.message = "stopping …"
            self._changed.notify_all()
        if waiting:
            self._finish(job, Ended(request=0, stop_reason="cancelled", text="", e2e_s=0.0))
        else:
            self._executor.cancel(run_id)
        return True

    def wait(
        self,
        run_id: str,
        until: Callable[[JobView], bool] | None = None,
        timeout_s: float | None = None,
    ) -> JobView | None:
        """Wait until the run is over (or ``until`` holds, asked at every change); its view then or at the time-out."""
        done = until or (lambda view: view.status in TERMINAL)

        def holds() -> bool:
            job = self._jobs.get(run_id)
            return job is None or done(self._view(job))

        with self._changed:
            self._changed.wait_for(holds, timeout_s)
            job = self._jobs.get(run_id)
            return None if job is None else self._view(job)

    def unload(self) -> None:
        """Free the loaded pair's memory, after the run in flight."""
        self._executor.unload()
        with self._changed:
            self._held.freeing()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the engine: the run in flight and the queued ones end as interrupted. May be called twice."""
        with self._submitting, self._changed:
            self._closing = True
            waiting = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for job in waiting:
            self._finish(job, Ended(request=0, stop_reason="interrupted", text="", e2e_s=0.0))
        self._executor.close()
        if self._thread is not None:
            self._thread.join()

    # -- the thread that drives runs

    def _drive(self) -> None:
        while (job := self._next()) is not None:
            self._finish(job, self._decode(job))

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if self._closing:
                return None
            job = self._running = self._queue.popleft()
            job.status, job.started_at = "running", datetime.now(UTC)
            self._held.beginning(job.spec.pair)
            self._changed.notify_all()
            return job

    def _decode(self, job: Job) -> Ended:
        try:
            ended = self._executor.execute(job.run_id, job.spec, lambda happening: self._take(job, happening))
        except WorkerLost as lost:
            with self._changed:
                self._held.lost()
            count = len(job.rounds)
            kept = f"The run's {count} whole round{'s are' if count != 1 else ' is'} kept."
            ended = self._broken_off(job, f"{lost} {kept}")
        except EngineFault as fault:
            ended = self._broken_off(job, str(fault))
        except Exception as bug:
            LOG.exception("run %s could not be followed", job.run_id)
            ended = self._broken_off(
                job,
                f"The run could not be followed ({type(bug).__name__}: {bug}): see the app's log.",
            )
        if ended.stop_reason == "cancelled" and self._closing and not job.cancelling:
            return replace(ended, stop_reason="interrupted")
        return ended

    def _broken_off(self, job: Job, sentence: str) -> Ended:
        """The end of a run whose engine is gone: what was asked for if that is why, else failed."""
        reason: StopReason = "cancelled" if job.cancelling else "interrupted" if self._closing else "failed"
        text = "".join(piece for round in job.rounds for piece in round.committed_text)
        e2e_s = job.rounds[-1].ended_at_s if job.rounds else 0.0
        return Ended(
            request=0,
            stop_reason=reason,
            text=text,
            e2e_s=e2e_s,
            error=sentence if reason == "failed" else None,
        )

    def _take(self, job: Job, happening: Happening) -> None:
        match happening:
            case Loading(message=message, fraction=fraction):
                with self._changed:
                    if not job.cancelling:
                        job.message, job.progress = message, fraction
                    self._changed.notify_all()
            case RunStarted(started=started):
                at = job.started_at or datetime.now(UTC)
                self._store(job, lambda sink: sink.started(job.run_id, started, at))
                with self._changed:
                    self._held.proved(job.spec.pair)
                    job.started, job.progress = started, None
                    if job.stored and not job.cancelling:
                        job.message = ""
                    self._changed.notify_all()
            case RunRound(round=round):
                self._store(job, lambda sink: sink.rounds(job.run_id, (round,)))
                with self._changed:
                    job.rounds.append(round)
                    self._changed.notify_all()

    def _finish(self, job: Job, ended: Ended) -> None:
        ended, summary = _summed_up(job, ended)
        at = datetime.now(UTC)
        self._store(job, lambda sink: sink.ended(job.run_id, ended, summary, at))
        with self._changed:
            job.status, job.ended, job.summary, job.ended_at = (
                _status(ended.stop_reason),
                ended,
                summary,
                at,
            )
            job.progress = None
            if job.stored:
                job.message = ""
            if self._running is job:
                self._running = None
                self._held.over(job.spec.pair)
            self._over.append(job)
            self._forget()
            self._changed.notify_all()

    def _store(self, job: Job, write: Callable[[RunSink], None]) -> None:
        """Hand a record to the sink. A sink that fails loses this run, which its message says, not the engine."""
        if self._sink is None or not job.stored or job.warming:
            return  # after a lost record the rest would be a run with a hole
        try:
            write(self._sink)
        except Exception as fault:
            LOG.exception("run %s is not stored", job.run_id)
            with self._changed:
                job.stored = False
                job.message = f"This run is not being kept: {fault}"

    def _forget(self) -> None:
        rounds = sum(len(job.rounds) for job in self._over)
        while len(self._over) > 1 and (len(self._over) > KEEP_RUNS or rounds > KEEP_ROUNDS):
            oldest = self._over.popleft()
            rounds -= len(oldest.rounds)
            del self._jobs[oldest.run_id]

    def _view(self, job: Job) -> JobView:
        return job.view(self._queue.index(job) + 1 if job in self._queue else 0)


def _status(reason: StopReason) -> RunStatus:
    match reason:
        case "failed" | "cancelled" | "interrupted":
            return reason
        case _:
            return "done"


def _summed_up(job: Job, ended: Ended) -> tuple[Ended, Summary | None]:
    """The run's metrics; a run whose records break a conservation law (metrics.md) is failed, whatever it seemed."""
    if job.started is None:
        return ended, None
    try:
        summary = summarise(job.started, job.rounds, ended)
        broken = "; ".join(violations(summary, job.rounds))
    except Exception as bug:
        LOG.exception("run %s has no summary", job.run_id)
        summary, broken = None, f"{type(bug).__name__}: {bug}"
    if not broken:
        return ended, summary
    sentence = f"The run's records don't add up ({broken}): please report this with the run's settings."
    LOG.error("run %s: %s", job.run_id, sentence)
    ended = replace(ended, stop_reason="failed", error=ended.error or sentence)
    return ended, summary and replace(summary, stop_reason="failed")
