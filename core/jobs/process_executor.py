"""The executor that keeps the engine in a process of its own: a real kill, and a device that is given back."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.errors import EngineFault
from core.jobs.child_log import ChildLog
from core.jobs.executors import STOPPED, Listen, RunLost, WorkerLost
from core.jobs.worker_process import WorkerProcess
from core.worker.protocol import (
    Cancel,
    Complaint,
    Message,
    Pause,
    Report,
    Resume,
    Run,
    RunEnded,
    RunStarted,
    Shutdown,
    Step,
    Together,
    Unload,
)

LOG = logging.getLogger("speclens.jobs")

WORKER_COMMAND = (sys.executable, "-m", "core.worker")


@dataclass(eq=False, slots=True)
class _Open:
    """A run that a process decodes."""

    process: WorkerProcess
    listen: Listen
    paused: bool
    cancelled: bool = False
    started: bool = False

    @property
    def at_work(self) -> bool:
        """Whether it would be a loss to kill its process."""
        return not self.cancelled and not (self.paused and self.started)


class ProcessExecutor:
    """Decodes in a process of its own, started at the first run and again when it was lost.

    ``command`` runs core.worker; ``log_file`` takes what it prints (rotating, at most 3 MB). A run that has not ended
    ``cancel_timeout_s`` after its cancel has its process killed, but not under other runs that are at work: those may
    keep the device for long (loading weights), and the run ends after them. ``stop_timeout_s`` is the same for closing.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        log_file: Path | None = None,
        cancel_timeout_s: float = 20.0,
        stop_timeout_s: float = 5.0,
    ) -> None:
        self._command = tuple(command or WORKER_COMMAND)
        self._log = ChildLog(log_file)
        self._cancel_timeout_s = cancel_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._lock = threading.Lock()  # the process, its stdin, and the fields below
        self._process: WorkerProcess | None = None
        self._open: dict[str, _Open] = {}
        self._cancelled: set[str] = set()
        self._deadline: threading.Timer | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None before the first run and after closing."""
        process = self._process
        return None if process is None else process.pid

    def begin(self, runs: Sequence[Run], listen: Listen) -> None:
        """See :class:`Executor`."""
        command = runs[0] if len(runs) == 1 else Together(runs=tuple(runs))
        with self._lock:
            self._send_runs(command, runs, listen)
            for run_id in self._cancelled & self._open.keys():
                self._ask_to_cancel(run_id)

    def cancel(self, run_id: str) -> None:
        """See :class:`Executor`."""
        with self._locked(self._cancel_timeout_s):
            self._cancelled.add(run_id)
            if run_id in self._open:
                self._ask_to_cancel(run_id)

    def pause(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._steer(Pause(run_id=run_id), paused=True)

    def resume(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._steer(Resume(run_id=run_id), paused=False)

    def step(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._steer(Step(run_id=run_id), paused=True)

    def unload(self) -> None:
        """See :class:`Executor`; a worker that isn't running has nothing loaded."""
        with self._lock:
            if self._process is not None:
                self._process.send(Unload())

    def alive(self) -> bool:
        """See :class:`Executor`: the worker runs."""
        process = self._process
        return process is not None and process.alive

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._locked(self._stop_timeout_s):
            self._closed = True
            self._forget_deadline()
            process, self._process = self._process, None
            deadline = None if process is None else self._shut_down(process)
        if process is not None and deadline is not None:
            process.join()  # without the lock, which the thread that is waited for needs
            deadline.cancel()
        self._log.close()

    @contextmanager
    def _locked(self, patience_s: float) -> Iterator[None]:
        """The lock; a worker that keeps it, because it doesn't even read what is sent to it, is killed."""
        while not self._lock.acquire(timeout=patience_s):
            if (process := self._process) is not None:
                process.kill()
        try:
            yield
        finally:
            self._lock.release()

    # -- with the lock held

    def _send_runs(self, command: Message, runs: Sequence[Run], listen: Listen) -> None:
        """Hand the runs to a living worker, starting one if need be."""
        words = ""
        for _ in range(2):
            if self._closed:
                raise EngineFault(STOPPED)
            process = self._process
            if process is None or not process.alive:
                process = self._process = WorkerProcess(self._command, self._log, self._heard, self._over)
            # Before they are sent: their reports may come before ``send`` returns.
            self._open |= {run.run_id: _Open(process, listen, run.paused) for run in runs}
            if process.send(command):
                return
            for run in runs:  # it died before they began, so they may be sent again
                self._open.pop(run.run_id, None)
            process.kill()
            process.reap()
            words = process.last_words()
        raise WorkerLost(f"The engine process ends as soon as it is started.{words}")

    def _ask_to_cancel(self, run_id: str) -> None:
        run = self._open[run_id]
        if not run.cancelled:
            run.cancelled = True
            self._set_deadline()
            run.process.send(Cancel(run_id=run_id))

    def _shut_down(self, process: WorkerProcess) -> threading.Timer:
        """Ask the process to end; what kills it if it doesn't."""
        deadline = threading.Timer(self._stop_timeout_s, process.kill)
        deadline.daemon = True
        deadline.start()
        process.send(Shutdown())
        process.end_input()
        return deadline

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = threading.Timer(self._cancel_timeout_s, self._overdue)
            self._deadline.daemon = True
            self._deadline.start()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_run(self, run_id: str) -> _Open | None:
        run = self._open.pop(run_id, None)
        self._cancelled.discard(run_id)
        if not any(other.cancelled for other in self._open.values()):
            self._forget_deadline()
        return run

    # -- without it

    def _steer(self, command: Pause | Resume | Step, *, paused: bool) -> None:
        with self._lock:
            if (run := self._open.get(command.run_id)) is not None:
                run.paused = paused
                run.process.send(command)

    def _overdue(self) -> None:
        """A cancelled run has not ended in time."""
        with self._locked(self._cancel_timeout_s):
            self._deadline = None
            late = [run for run in self._open.values() if run.cancelled]
            if any(run.at_work for run in self._open.values()):
                self._set_deadline()
                return
            for process in {run.process for run in late}:
                process.kill(
                    f"The engine process was killed: a run had not ended {self._cancel_timeout_s:g} s after its cancel."
                )

    def _heard(self, report: Report) -> None:
        assert not isinstance(report, Complaint)
        with self._lock:
            run = self._close_run(report.run_id) if isinstance(report, RunEnded) else self._open.get(report.run_id)
        if run is None:
            return  # a run that nobody followed to its end
        run.started |= isinstance(report, RunStarted)
        run.listen(report)

    def _over(self, process: WorkerProcess) -> None:
        """Clear the lost process away and start its successor, unless that was what we wanted."""
        sentence = process.ending()
        with self._lock:
            lost = {run_id: run for run_id, run in self._open.items() if run.process is process}
            unasked = not self._closed and not all(run.cancelled for run in lost.values())
            if unasked and self._process is process:
                LOG.error("%s", sentence)
                sentence = self._restart(sentence)
            elif self._process is process:
                self._process = None
            for run_id in lost:
                self._close_run(run_id)
        process.end_input()
        for run_id, run in lost.items():
            run.listen(RunLost(run_id, sentence))

    def _restart(self, sentence: str) -> str:
        try:
            self._process = WorkerProcess(self._command, self._log, self._heard, self._over)
        except EngineFault as error:
            self._process = None
            return f"{sentence} {error}"
        return f"{sentence} It was started again."
