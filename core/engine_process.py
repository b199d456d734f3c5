"""The executor that keeps the engine in a process of its own: a real kill, and a device that is given back."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from core.child_log import ChildLog
from core.errors import BadInput, EngineFault
from core.executors import STOPPED, WorkerLost
from core.protocol import (
    Cancel,
    Complaint,
    Happening,
    Message,
    Run,
    RunEnded,
    Shutdown,
    Unload,
    decode_report,
    encode,
)
from core.records import Ended
from core.types import RunSpec

LOG = logging.getLogger("speclens.jobs")

WORKER_COMMAND = (sys.executable, "-m", "core.worker")


class ProcessExecutor:
    """Decodes in a process of its own, started at the first run and again when it was lost.

    ``command`` runs core.worker; ``log_file`` takes what it prints (rotating, at most 3 MB); a run that has not ended
    ``cancel_timeout_s`` after its cancel has its process killed, ``stop_timeout_s`` is the same for closing.
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
        self._process: subprocess.Popen[bytes] | None = None
        self._current: str | None = None
        self._cancelled: set[str] = set()
        self._deadline: threading.Timer | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None before the first run and after closing."""
        process = self._process
        return None if process is None else process.pid

    def execute(self, run_id: str, spec: RunSpec, tell: Callable[[Happening], None]) -> Ended:
        """See :class:`Executor`."""
        process = None
        try:
            with self._lock:
                process = self._send_run(Run(run_id=run_id, spec=spec))
                self._current = run_id
                if run_id in self._cancelled:
                    self._ask_to_cancel(run_id)
            return self._follow(process, run_id, tell)
        finally:
            with self._lock:
                self._current = None
                self._cancelled.discard(run_id)
                if self._deadline is not None:
                    self._deadline.cancel()
                    self._deadline = None
                if self._closed and process is not None and process.stdout is not None:
                    process.stdout.close()

    def cancel(self, run_id: str) -> None:
        """See :class:`Executor`."""
        with self._locked(self._cancel_timeout_s):
            self._cancelled.add(run_id)
            if self._current == run_id:
                self._ask_to_cancel(run_id)

    def unload(self) -> None:
        """See :class:`Executor`; a worker that isn't running has nothing loaded."""
        with self._lock:
            if self._process is not None:
                self._send(self._process, Unload())

    def alive(self) -> bool:
        """See :class:`Executor`: the worker runs."""
        process = self._process
        return process is not None and process.poll() is None

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._locked(self._stop_timeout_s):
            self._closed = True
            process, self._process = self._process, None
            if process is not None:
                deadline = threading.Timer(self._stop_timeout_s, process.kill)
                deadline.daemon = True
                deadline.start()
                self._send(process, Shutdown())
                self._close_stdin(process)
                self._reap(process)
                deadline.cancel()
                if self._current is None and process.stdout is not None:
                    process.stdout.close()  # else the thread that reads it does
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

    # -- the process: all these are called with the lock held

    def _send_run(self, command: Run) -> subprocess.Popen[bytes]:
        """Hand the run to a living worker, starting one if need be."""
        for _ in range(2):
            if self._closed:
                raise EngineFault(STOPPED)
            process = self._process
            if process is None or process.poll() is not None:
                process = self._start()
            if self._send(process, command):
                return process
            self._discard(process)  # it died while idle: the run has not begun, so it may be sent again
        raise WorkerLost(f"The engine process ends as soon as it is started.{self._log.last_words()}")

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            self._discard(self._process)
        # The worker must find this package wherever the app was started; its folder stays the app's.
        root = str(Path(__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except OSError as error:
            sentence = f"The engine process can't be started ({error}): install the requirements with make run."
            raise EngineFault(sentence) from error
        assert process.stderr is not None
        self._log.follow(process.stderr)
        self._process = process
        return process

    def _send(self, process: subprocess.Popen[bytes], message: Message) -> bool:
        """Write one command; False when the process no longer listens."""
        assert process.stdin is not None
        try:
            process.stdin.write(encode(message))
            process.stdin.flush()
        except (BrokenPipeError, ValueError):  # ValueError: already closed
            return False
        return True

    def _ask_to_cancel(self, run_id: str) -> None:
        process = self._process
        if process is None or self._deadline is not None:
            return
        self._deadline = threading.Timer(self._cancel_timeout_s, process.kill)
        self._deadline.daemon = True
        self._deadline.start()
        self._send(process, Cancel(run_id=run_id))

    def _discard(self, process: subprocess.Popen[bytes]) -> None:
        if self._process is process:
            self._process = None
        self._close_stdin(process)
        process.kill()
        self._reap(process)
        assert process.stdout is not None
        process.stdout.close()

    def _close_stdin(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # it closed its output and yet goes on
            process.wait()
        self._log.settle()

    # -- a run

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        run_id: str,
        tell: Callable[[Happening], None],
    ) -> Ended:
        """Pass on what the worker reports until this run's end."""
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # killed in the middle of a line: only whole rounds count
            try:
                report = decode_report(line)
            except BadInput as error:
                report = Complaint(message=str(error))
            if not isinstance(report, Complaint) and report.run_id != run_id:
                continue  # a run that nobody followed to its end
            match report:
                case RunEnded():
                    return report.ended
                case Complaint():
                    raise self._lost(
                        process,
                        f"The engine process was not understood and stopped. {report.message}",
                    )
                case _:
                    tell(report)
        raise self._lost(process, None)

    def _lost(self, process: subprocess.Popen[bytes], reason: str | None) -> WorkerLost:
        """Clear the lost process away and start its successor, unless closing; the error to raise."""
        with self._lock:
            stopped_by_us = self._closed or self._current in self._cancelled
            if reason is not None:
                process.kill()
            self._reap(process)
            words = self._log.last_words()
            self._discard(process)
            sentence = reason or f"The engine process {_ending(process.returncode)}.{words}"
            if stopped_by_us:
                return WorkerLost(sentence)
            LOG.error("%s", sentence)
            try:
                self._start()
            except EngineFault as error:
                return WorkerLost(f"{sentence} {error}")
        return WorkerLost(f"{sentence} It was started again.")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    hint = "; if nobody did that on purpose, the machine ran out of memory: lower the settings or choose a smaller pair"
    return f"was killed by signal {-code} ({name}{hint if -code == signal.SIGKILL else ''})"
