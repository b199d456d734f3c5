"""The queue in front of the engine: runs are submitted, watched, paused and cancelled here, from any thread.

One run is decoded at a time, in the order of submission; runs submitted together race, one round each in turn; a paused
run leaves the device to the next. A run's records go to the sink first and are shown here afterwards, so that a run
shown as ended can be found in the store once the store is flushed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from core.errors import BadInput, EngineFault
from core.jobs import endings
from core.jobs.executors import Executor, RunLost, WorkerLost
from core.jobs.process_executor import ProcessExecutor
from core.jobs.queue import Job, JobView, Queue
from core.jobs.recorder import Recorder, RunSink
from core.records import TERMINAL, Ended, Round, Started, ended_early, status_of
from core.run_id import RunIds
from core.types import PairSpec, Request, RunSpec, Stops
from core.worker.protocol import Begin, Cancel, Loaded, Loading, Pause, Resume, Run, RunCommand, RunEvent, Step, Unload

KEEP_RUNS = 50
"""Ended runs that stay in memory; older ones are in the store."""

KEEP_ROUNDS = 5_000
"""Rounds that ended runs may hold in memory together (chain:4: 17 KiB each): the oldest runs go, the latest stays."""

PAUSE_LIMIT_S = 600.0
"""How long a paused run keeps its cache when nobody steps it (design.md)."""

CANCEL_TIMEOUT_S = 20.0
"""How long a cancelled run may take to end before its process is killed."""

UNLOAD_WAIT_S = 1.0
"""How long ``unload`` waits for the engine, which may be in the middle of a round or a load."""

LOAD_PROMPT = "Hello"


def load_spec(pair: PairSpec) -> RunSpec:
    """The shortest run there is: one token, decoded plainly. It ends with ``pair`` in memory and shows that a pass
    works on this device."""
    return RunSpec(pair=pair, request=Request(prompt=LOAD_PROMPT, chat=False, stops=Stops(max_new_tokens=1)))


class Jobs:
    """Runs of one app process. ``sink`` takes their records, ``session`` names this process in them.

    ``executor`` decodes (default: core.worker in its own process, by ``worker_command`` if given). A run that is paused
    for ``pause_limit_s`` without a step ends as cancelled. A run that has not ended ``cancel_timeout_s`` after its
    cancel has its process killed, unless another run is at work there. Close it when done.
    """

    def __init__(
        self,
        sink: RunSink | None,
        session: str,
        worker_command: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        pause_limit_s: float = PAUSE_LIMIT_S,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
    ) -> None:
        self._recorder = Recorder(sink, session)
        self._executor = executor or ProcessExecutor(worker_command)
        self._executor.connect(self._take)
        self._ids = RunIds()
        self._submitting = threading.Lock()
        # Guards everything below. Held while a command is sent too, so that the executor gets the commands to a run in
        # the order in which the job was marked.
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._queue = Queue(pause_limit_s, cancel_timeout_s)
        self._load: Job | None = None
        self._over: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False

    # -- runs

    def submit(self, spec: RunSpec, *, paused: bool = False) -> str:
        """Queue a run; its id. A run submitted ``paused`` waits before its first round for a step or resume.

        Raises EngineFault after close, StorageUnavailable when the sink refuses it.
        """
        return self.submit_together([spec], paused=paused)[0]

    def submit_together(self, specs: Sequence[RunSpec], *, paused: bool = False) -> list[str]:
        """Queue a race: these runs begin together and their rounds alternate, in the order given; their ids.

        Raises as ``submit`` does, and BadInput without any spec.
        """
        if not specs:
            raise BadInput("There is nothing to decode: give at least one run.")
        return [job.run_id for job in self._enter(specs, paused=paused)]

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
            return [self._view(job) for job in self._queue if not job.load_only]

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
            return self.view(run_id)

    def cancel(self, run_id: str) -> bool:
        """End a queued run now, an open one within a round. False when there is nothing to cancel (any more)."""
        with self._changed:
            job = self._jobs.get(run_id)
            if job is None or job.over or job.cancelling:
                return False
            waiting = self._queue.remove(job)
            job.message = "stopping …"
            self._command(job, Cancel(run_id=run_id))
        if waiting:
            self._finish(job, ended_early((), "cancelled"))
        return True

    def pause(self, run_id: str) -> bool:
        """Stop a run after its current round, or before its first if it is queued; other runs get the device
        meanwhile. False when there is nothing to pause (any more)."""
        return self._steer(Pause(run_id=run_id), paused=False)

    def resume(self, run_id: str) -> bool:
        """Let a paused run go on, its rounds alternating with those of the runs that have the device by now. False
        when it isn't paused."""
        return self._steer(Resume(run_id=run_id), paused=True)

    def step(self, run_id: str) -> bool:
        """Let a paused run make one round, which comes next between the rounds of other runs. False when it isn't
        paused."""
        return self._steer(Step(run_id=run_id), paused=True)

    # -- pairs

    def load(self, pair: PairSpec) -> str:
        """Queue the loading of a pair, which is neither listed nor stored as a run; its id, to view, wait for and
        cancel. While a load of the same pair is not over, that load's id. Raises EngineFault after close."""
        with self._changed:
            load = self._load
        if load is None or load.over or load.spec.pair != pair or load.cancelling:
            load = self._load = self._enter([load_spec(pair)], load_only=True)[0]
        return load.run_id

    def loading(self) -> JobView | None:
        """The load that was asked for last, in whatever state; None before the first."""
        with self._changed:
            return None if self._load is None else self._view(self._load)

    def loaded(self) -> tuple[PairSpec, ...]:
        """The pairs in the engine's memory now, in the order in which they were loaded."""
        return self._executor.loaded()

    def unload(self) -> None:
        """Free the loaded pairs' memory; a pair in use is freed after its runs. Waits for the unused ones, for
        :data:`UNLOAD_WAIT_S` seconds at most."""
        with self._changed:
            self._executor.send(Unload())
            self._changed.wait_for(self._only_used_pairs, UNLOAD_WAIT_S)

    def _only_used_pairs(self) -> bool:
        used = [job.spec.pair for job in self._queue.open.values()]
        return all(pair in used for pair in self._executor.loaded())

    # -- all of it

    def close(self) -> None:
        """Stop the engine: open and queued runs end as interrupted. May be called twice."""
        with self._submitting, self._changed:
            self._closing = True
            waiting = self._queue.clear()
            self._changed.notify_all()
        for job in waiting:
            self._finish(job, ended_early((), "interrupted"))
        self._executor.close()
        if self._thread is not None:
            self._thread.join()

    def _enter(self, specs: Sequence[RunSpec], *, paused: bool = False, load_only: bool = False) -> list[Job]:
        with self._submitting:  # ids, the sink's rows and the queue have one order
            with self._changed:
                if self._closing:
                    raise EngineFault("The engine is stopped and takes no more runs: start the app again.")
            at = datetime.now(UTC)
            group = [Job(self._ids.next(), spec, at, paused=paused, load_only=load_only) for spec in specs]
            self._recorder.submitted(group)
            with self._changed:
                self._jobs |= {job.run_id: job for job in group}
                self._queue.append(group)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._drive, name="jobs", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        return group

    def _steer(self, command: Pause | Resume | Step, *, paused: bool) -> bool:
        """Pass on a command that is meant for a run that is ``paused``, or not; False when there is no such run."""
        with self._changed:
            job = self._jobs.get(command.run_id)
            if job is None or job.over or job.cancelling or job.paused is not paused:
                return False
            self._command(job, command)
        return True

    def _command(self, job: Job, command: RunCommand) -> None:
        """With the lock held: mark the job and, if it is open, pass the command to the executor."""
        job.apply(command)
        if job.run_id in self._queue.open:
            self._executor.send(command)
        self._changed.notify_all()

    def _view(self, job: Job) -> JobView:
        return job.view(self._queue.position(job))

    # -- the thread that begins runs and watches their time limits

    def _drive(self) -> None:
        while True:
            with self._changed:
                while not (self._closing or self._queue.ready or (left := self._queue.left_s()) == 0.0):
                    self._changed.wait(left)
                if self._closing:
                    return
                self._end_late()
            self._begin_next()

    def _end_late(self) -> None:
        for job in self._queue.parked_too_long():
            job.why = endings.paused_too_long(self._queue.pause_limit_s)
            self._command(job, Cancel(run_id=job.run_id))
        for job in self._queue.stuck():
            limit = f"{self._queue.cancel_timeout_s:g} s"
            sentence = f"The engine process was killed: a run had not ended {limit} after its cancel."
            self._executor.kill(job.run_id, sentence)

    def _begin_next(self) -> None:
        with self._changed:
            group = self._queue.begin()
            if not group:
                return
            self._changed.notify_all()
            runs = tuple(Run(run_id=job.run_id, spec=job.spec, paused=job.paused) for job in group)
            try:
                self._executor.send(Begin(runs=runs))
            except Exception as error:
                fault = error
            else:
                for job in group:
                    for _ in range(job.steps):
                        self._executor.send(Step(run_id=job.run_id))
                return
        for job in group:
            self._finish(job, endings.broken_off(job, fault, closing=self._closing))

    # -- what the executor reports, in its thread

    def _take(self, report: Loading | RunEvent | RunLost | Loaded) -> None:
        if isinstance(report, Loaded):
            with self._changed:
                self._changed.notify_all()
            return
        with self._changed:
            job = self._queue.open.get(report.run_id)
        if job is None:
            return
        try:
            match report:
                case Loading(message=message, fraction=fraction):
                    with self._changed:
                        if not job.cancelling:
                            job.message, job.progress = message, fraction
                        self._changed.notify_all()
                case RunEvent(event=Ended() as ended):
                    self._finish(job, ended)
                case RunEvent(event=Started() | Round() as event):
                    self._record(job, event)
                case RunLost(sentence=sentence):
                    self._finish(job, endings.broken_off(job, WorkerLost(sentence), closing=self._closing))
        except Exception as bug:
            self._finish(job, endings.broken_off(job, bug, closing=self._closing))
            self._executor.send(Cancel(run_id=job.run_id))

    def _record(self, job: Job, event: Started | Round) -> None:
        match event:
            case Started():
                self._recorder.started(job, event, job.started_at or datetime.now(UTC))
            case Round():
                self._recorder.round(job, event)
        with self._changed:
            job.add(event)
            self._changed.notify_all()

    def _finish(self, job: Job, ended: Ended) -> None:
        ended, summary = endings.final(job, ended, closing=self._closing)
        at = datetime.now(UTC)
        self._recorder.ended(job, ended, summary, at)
        with self._changed:
            job.end(status_of(ended.stop_reason), ended, summary, at)
            self._queue.open.pop(job.run_id, None)
            self._forget(job)
            self._changed.notify_all()

    def _forget(self, latest: Job) -> None:
        """Drop the oldest ended runs beyond what stays in memory."""
        self._over.append(latest)
        rounds = sum(len(job.rounds) for job in self._over)
        while len(self._over) > 1 and (len(self._over) > KEEP_RUNS or rounds > KEEP_ROUNDS):
            oldest = self._over.popleft()
            rounds -= len(oldest.rounds)
            del self._jobs[oldest.run_id]
