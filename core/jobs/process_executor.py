"""The executor that keeps the engine in a process of its own, which can be killed and gives its device back."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from core.errors import EngineFault
from core.jobs.executors import STOPPED, Listen, RunLost
from core.jobs.worker_process import EngineLog, WorkerProcess
from core.types import PairSpec
from core.worker.protocol import Begin, Command, Shutdown

LOG = logging.getLogger("speclens.jobs")

WORKER_COMMAND = (sys.executable, "-m", "core.worker")


class ProcessExecutor:
    """Decodes in a worker process, which is started at the first run and again after it was lost under a run.

    ``command`` runs core.worker; ``log_file`` takes what it prints (rotating, at most 3 MB). A worker that has not
    exited ``stop_timeout_s`` seconds after ``close`` asked it to is killed.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        *,
        log_file: Path | None = None,
        stop_timeout_s: float = 5.0,
    ) -> None:
        self._command = tuple(command or WORKER_COMMAND)
        self._log = EngineLog(log_file)
        self._stop_timeout_s = stop_timeout_s
        self._listen: Listen | None = None
        self._lock = threading.Lock()  # guards the fields below
        self._process: WorkerProcess | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None before the first run, after closing, and after a worker without runs ended."""
        process = self._process
        return None if process is None else process.pid

    def connect(self, listen: Listen) -> None:
        """See :class:`Executor`."""
        self._listen = listen

    def send(self, command: Command) -> None:
        """See :class:`Executor`. Without a worker there is no open run and no loaded pair to command."""
        with self._lock:
            if isinstance(command, Begin):
                if self._closed:
                    raise EngineFault(STOPPED)
                if self._process is None or not self._process.alive:
                    self._process = self._started()
            if self._process is not None:
                self._process.send(command)

    def loaded(self) -> tuple[PairSpec, ...]:
        """See :class:`Executor`."""
        process = self._process
        return process.loaded if process is not None and process.alive else ()

    def kill(self, run_id: str, sentence: str) -> None:
        """See :class:`Executor`."""
        with self._lock:
            if self._process is not None and run_id in self._process.runs:
                self._process.kill(sentence)

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            deadline = threading.Timer(self._stop_timeout_s, process.kill)
            deadline.daemon = True
            deadline.start()
            process.send(Shutdown())
            process.end_input()
            process.join()
            deadline.cancel()
        self._log.close()

    def _started(self) -> WorkerProcess:
        assert self._listen is not None, "connect first"
        return WorkerProcess(self._command, self._log, self._listen, self._over)

    def _over(self, process: WorkerProcess) -> None:
        """Report the runs of a process that ended. If it had any, start its successor, which may be there already."""
        sentence = process.ending()
        with self._lock:
            lost = sorted(process.runs)
            if self._process is process:
                self._process = None
                if lost:
                    LOG.error("%s", sentence)
                    sentence = self._restart(sentence)
        process.end_input()
        assert self._listen is not None
        for run_id in lost:
            self._listen(RunLost(run_id, sentence))

    def _restart(self, sentence: str) -> str:
        try:
            self._process = self._started()
        except EngineFault as error:
            return f"{sentence} {error}"
        return f"{sentence} It was started again."
