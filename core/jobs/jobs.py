"""The queue in front of the engine: runs are submitted, watched, paused and cancelled here, from any thread.

One run is decoded at a time, in the order of submission; those submitted together race, a round each in turn; a paused
run leaves the device to the next. A run's records go to the sink first and are seen here afterwards, so that whoever
sees a run ended can find it in the store once that is flushed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from core.errors import BadInput, EngineFault
from core.jobs import endings
from core.jobs.executors import Executor, News, RunLost, WorkerLost
from core.jobs.job import Job, JobView
from core.jobs.line import Line
from core.jobs.open_jobs import OpenJobs
from core.jobs.process_executor import ProcessExecutor
from core.jobs.recorder import Recorder
from core.jobs.run_id import RunIds
from core.jobs.sink import RunSink
from core.jobs.warming import Held, warm_up
from core.records import TERMINAL, Ended, Round, StopReason
from core.types import PairSpec, RunSpec
from core.worker.protocol import Happening, Loading, Run, RunEnded, RunRound, RunStarted

__all__ = ["KEEP_ROUNDS", "KEEP_RUNS", "PAUSE_LIMIT_S", "JobView", "Jobs"]

KEEP_RUNS = 50
"""Ended runs that stay in memory; older ones are in the store."""

KEEP_ROUNDS = 5_000
"""Rounds that ended runs may hold in memory together (chain:4: 17 KiB each): the oldest runs go, the latest stays."""

PAUSE_LIMIT_S = 600.0
"""How long a paused run keeps its cache when nobody steps it (design.md)."""


class Jobs:
    """Runs of one app process. ``sink`` takes their records, ``session`` names this process in them.

    ``executor`` decodes (default: core.worker in its own process, by ``worker_command`` if given); a run that is paused
    for ``pause_limit_s`` without a step ends as cancelled. Close it when done.
    """

    def __init__(
        self,
        sink: RunSink | None,
        session: str,
        worker_command: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        pause_limit_s: float = PAUSE_LIMIT_S,
    ) -> None:
        self._recorder = Recorder(sink, session)
        self._executor = executor or ProcessExecutor(worker_command)
        self._ids = RunIds()
        self._submitting = threading.Lock()
        self._steering = threading.Lock()  # the executor is told of a run in the order in which it was marked here
        self._changed = threading.Condition()  # guards everything below
        self._jobs: dict[str, Job] = {}
        self._line = Line()
        self._open = OpenJobs(pause_limit_s)
        self._held = Held()
        self._load: Job | None = None
        self._over: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False

    # -- what people ask for

    def submit(self, spec: RunSpec, *, paused: bool = False) -> str:
        """Queue a run; its id. One that is ``paused`` stands before its first round, for the first step.

        Raises EngineFault after close, StorageUnavailable when the sink refuses it.
        """
        return self.submit_together([spec], paused=paused)[0]

    def submit_together(self, specs: Sequence[RunSpec], *, paused: bool = False) -> list[str]:
        """Queue a race: these runs begin as one and their rounds alternate, in the order given; their ids.

        Raises as ``submit`` does, and BadInput without any spec.
        """
        if not specs:
            raise BadInput("There is nothing to decode: give at least one run.")
        return [job.run_id for job in self._enter(specs, paused=paused)]

    def _enter(self, specs: Sequence[RunSpec], *, paused: bool = False, warming: bool = False) -> list[Job]:
        with self._submitting:  # ids, the sink's rows and the queue have one order
            with self._changed:
                if self._closing:
                    raise EngineFault("The engine is stopped and takes no more runs: start the app again.")
            at = datetime.now(UTC)
            group = [Job(self._ids.next(), spec, at, paused=paused, warming=warming) for spec in specs]
            self._recorder.submitted(group)
            with self._changed:
                self._jobs |= {job.run_id: job for job in group}
                self._line.append(group)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._drive, name="jobs", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        return group

    def load(self, pair: PairSpec) -> str:
        """Queue the loading of a pair (warming.py): no run, neither listed nor stored; its id, to view, wait for
        and cancel. A load of the same pair that isn't over yet is not asked for twice. Raises EngineFault after close.
        """
        with self._changed:
            load = self._load
        if load is None or load.status in TERMINAL or load.spec.pair != pair or load.cancelling:
            load = self._load = self._enter([warm_up(pair)], warming=True)[0]
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
        """The open runs, paused ones included, and the queued ones, in order."""
        with self._changed:
            return [self._view(job) for job in (*self._open, *self._line) if not job.warming]

    def cancel(self, run_id: str) -> bool:
        """End a queued run now, an open one within a round. False when there is nothing to cancel (any more)."""
        with self._changed:
            job = self._jobs.get(run_id)
            if job is None or job.status in TERMINAL or job.cancelling:
                return False
            job.cancelling = True
            waiting = self._line.remove(job)
            job.message = "stopping …"
            self._changed.notify_all()
        if waiting:
            self._finish(job, endings.unbegun("cancelled"))
        else:
            self._executor.cancel(run_id)
        return True

    def pause(self, run_id: str) -> bool:
        """Let a run stand after its round in progress, or from its start if it is queued; others get the device
        meanwhile. False when there is nothing to pause (any more)."""
        return self._steer(run_id, False, True, self._executor.pause)

    def resume(self, run_id: str) -> bool:
        """Let a paused run go on, its rounds alternating with those of the runs that have the device by now. False
        when it isn't paused."""
        return self._steer(run_id, True, False, self._executor.resume)

    def step(self, run_id: str) -> bool:
        """Let a paused run make one round: its turn comes at the next border between others' rounds. False when it
        isn't paused."""
        return self._steer(run_id, True, True, self._executor.step)

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
        """Free the loaded pairs' memory, each after the runs that use it."""
        self._executor.unload()
        with self._changed:
            self._held.freeing()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the engine: open and queued runs end as interrupted. May be called twice."""
        with self._submitting, self._changed:
            self._closing = True
            waiting = self._line.clear()
            self._changed.notify_all()
        for job in waiting:
            self._finish(job, endings.unbegun("interrupted"))
        self._executor.close()
        if self._thread is not None:
            self._thread.join()

    def _steer(self, run_id: str, was: bool, becomes: bool, send: Callable[[str], None]) -> bool:
        """Mark a run that is paused or not (``was``) as ``becomes`` and, if it is open, tell the executor."""
        with self._steering:
            with self._changed:
                job = self._jobs.get(run_id)
                if job is None or job.status in TERMINAL or job.cancelling or job.paused is not was:
                    return False
                job.pause(becomes)
                waiting = self._line.position(job) > 0
                self._changed.notify_all()
            if not waiting:
                send(run_id)
        return True

    # -- the thread that begins runs and ends those that were paused too long

    def _drive(self) -> None:
        while self._wait_for_work():
            self._begin_next()
            for job in self._overdue():
                self._executor.cancel(job.run_id)

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not self._closing and (self._open.at_work or not self._line):
                left = self._open.left_s()
                if left == 0.0:
                    break
                self._changed.wait(left)
            return not self._closing

    def _overdue(self) -> list[Job]:
        """The runs that were paused too long, marked as being ended for that."""
        with self._changed:
            late = self._open.overdue()
            for job in late:
                job.cancelling, job.why = True, endings.paused_too_long(self._open.pause_limit_s)
            return late

    def _begin_next(self) -> None:
        with self._steering:
            with self._changed:
                group = [] if self._open.at_work else self._line.first()
                for job in group:
                    job.status, job.started_at = "running", datetime.now(UTC)
                    self._open.add(job)
                    self._held.beginning(job.spec.pair)
                self._changed.notify_all()
            if not group:
                return
            runs = [Run(run_id=job.run_id, spec=job.spec, paused=job.paused) for job in group]
            try:
                self._executor.begin(runs, self._listen)
            except Exception as fault:
                for job in group:
                    self._break_off(job, fault)
                return
            for job in group:
                for _ in range(job.steps):
                    self._executor.step(job.run_id)

    # -- what the executor's thread tells

    def _listen(self, news: News) -> None:
        with self._changed:
            job = self._open.get(news.run_id)
        if job is None:
            return
        try:
            match news:
                case RunEnded(ended=ended):
                    self._finish(job, ended)
                case RunLost(sentence=sentence):
                    self._break_off(job, WorkerLost(sentence))
                case _:
                    self._take(job, news)
        except Exception as bug:
            self._break_off(job, bug)
            self._executor.cancel(job.run_id)

    def _break_off(self, job: Job, fault: Exception) -> None:
        """End a run whose engine is gone: as was asked for if that is why, else failed."""
        if isinstance(fault, WorkerLost):
            with self._changed:
                self._held.lost()
        reason: StopReason = "cancelled" if job.cancelling else "interrupted" if self._closing else "failed"
        self._finish(job, endings.broken_off(job, reason, endings.why_broken(job, fault)))

    def _take(self, job: Job, happening: Happening) -> None:
        match happening:
            case Loading(message=message, fraction=fraction):
                with self._changed:
                    if not job.cancelling:
                        job.message, job.progress = message, fraction
                    self._changed.notify_all()
            case RunStarted(started=started):
                at = job.started_at or datetime.now(UTC)
                self._recorder.started(job, started, at)
                with self._changed:
                    job.start(started)
                    self._held.proved(job.spec.pair)
                    self._changed.notify_all()
            case RunRound(round=round):
                self._recorder.round(job, round)
                with self._changed:
                    job.add(round)
                    self._changed.notify_all()

    def _finish(self, job: Job, ended: Ended) -> None:
        if ended.stop_reason == "cancelled" and job.why is not None:
            ended = replace(ended, error=f"{job.why} {endings.kept(job)}")
        elif ended.stop_reason == "cancelled" and self._closing and not job.cancelling:
            ended = replace(ended, stop_reason="interrupted")
        ended, summary = endings.summed_up(job, ended)
        at = datetime.now(UTC)
        self._recorder.ended(job, ended, summary, at)
        with self._changed:
            job.end(endings.status(ended.stop_reason), ended, summary, at)
            if self._open.get(job.run_id) is job:
                self._open.remove(job)
                self._held.over(job.spec.pair)
            self._forget(job)
            self._changed.notify_all()

    def _forget(self, latest: Job) -> None:
        """The oldest ended runs, beyond what stays in memory."""
        self._over.append(latest)
        rounds = sum(len(job.rounds) for job in self._over)
        while len(self._over) > 1 and (len(self._over) > KEEP_RUNS or rounds > KEEP_ROUNDS):
            oldest = self._over.popleft()
            rounds -= len(oldest.rounds)
            del self._jobs[oldest.run_id]

    def _view(self, job: Job) -> JobView:
        return job.view(self._line.position(job))
