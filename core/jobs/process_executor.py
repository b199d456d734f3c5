"""The executor that keeps the engine in a process of its own, which can be killed and gives its device back: the log
of that process, one life of it, and the executor that starts the next."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from core import child
from core.errors import BadInput, EngineFault
from core.jobs.executors import STOPPED, Listen, RunLost
from core.records import Ended
from core.types import PairSpec
from core.worker.protocol import (
    Begin,
    Command,
    InvalidCommand,
    Loaded,
    Loading,
    RunEvent,
    Shutdown,
    decode_report,
    encode,
)

REAP_S = 5.0
"""How long a process that closed its output may take to end."""

LOG_LINES = 50
"""Lines of a process's log that are kept in memory."""

LONGEST_LINE = 4096
FILE_BYTES = 1_000_000
OLD_FILES = 2


class WorkerProcess:
    """Runs ``command``. Its reports go to ``report`` and its end, once, to ``over``, both in one thread of its own;
    ``log`` takes the lines that it prints. ``runs``: the runs it has open; ``loaded``: the pairs in its memory.

    Raises EngineFault when it can't be started. No method waits for the process to read.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: EngineLog,
        report: Callable[[Loading | RunEvent | Loaded], None],
        over: Callable[[WorkerProcess], None],
    ) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child.environment(),
            )
        except OSError as error:
            sentence = f"The engine process can't be started ({error}): install the requirements with make run."
            raise EngineFault(sentence) from error
        assert self._process.stderr is not None
        self.runs: set[str] = set()
        self.loaded: tuple[PairSpec, ...] = ()
        self._log = _LogReader(self._process.stderr, log)
        self._report = report
        self._over = over
        self._reason: str | None = None
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=self._write, name="engine commands", daemon=True).start()
        self._reader = threading.Thread(target=self._read, name="engine reports", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def send(self, command: Command) -> None:
        """Write one command, after all earlier ones; a process that no longer reads is killed."""
        if isinstance(command, Begin):
            self.runs.update(run.run_id for run in command.runs)
        self._lines.put(encode(command))

    def kill(self, reason: str | None = None) -> None:
        """End it now; ``reason`` becomes the sentence of ``ending``."""
        self._reason = self._reason or reason
        self._process.kill()

    def end_input(self) -> None:
        """Close its input after the commands sent so far; it then exits."""
        self._lines.put(None)

    def join(self) -> None:
        """Wait until its end has been passed on."""
        self._reader.join()

    def ending(self) -> str:
        """How it ended, with the last line it printed, as a sentence."""
        return self._reason or f"The engine process {_in_words(self._process.returncode)}.{self._log.last_line()}"

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while (line := self._lines.get()) is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except BrokenPipeError:
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a line: only whole rounds count
                try:
                    report = decode_report(line)
                    if isinstance(report, InvalidCommand):
                        raise BadInput(report.message)
                except BadInput as error:
                    self.kill(f"The engine process was not understood and stopped. {error}")
                    break
                match report:
                    case Loaded(pairs=pairs):
                        self.loaded = pairs
                    case RunEvent(event=Ended()):
                        self.runs.discard(report.run_id)
                    case _:
                        pass
                self._report(report)
            self._reap()
        self._over(self)

    def _reap(self) -> None:
        """Wait until it is gone and its log has been read."""
        try:
            self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it closed its output and yet goes on
            self._process.wait()
        self._log.settle()


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    hint = "; if nobody did that on purpose, the machine ran out of memory: lower the settings or choose a smaller pair"
    return f"was killed by signal {-code} ({name}{hint if -code == signal.SIGKILL else ''})"


class EngineLog:
    """The file for whatever the engine's processes print: ``path`` and :data:`OLD_FILES` rotated ones; None: no
    file."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: RotatingFileHandler | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RotatingFileHandler(
                path,
                maxBytes=FILE_BYTES,
                backupCount=OLD_FILES,
                encoding="utf-8",
                delay=True,
            )

    def write(self, line: str) -> None:
        """Append a line."""
        if self._file is not None:
            self._file.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _LogReader:
    """Reads what one process prints, in a thread, and keeps the last lines in memory."""

    def __init__(self, stream: IO[bytes], log: EngineLog) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._log = log
        self._thread = threading.Thread(target=self._read, args=(stream,), name="engine log", daemon=True)
        self._thread.start()

    def settle(self, timeout_s: float = 2.0) -> None:
        """Wait for the end of the stream, but not for long: a grandchild may hold it open."""
        self._thread.join(timeout_s)

    def last_line(self) -> str:
        """The last line that is not blank, as an appendix to a sentence; empty when there is none."""
        lines = [line for line in list(self._lines) if line.strip()]
        return f" Its last words: “{lines[-1].strip()[:300]}”." if lines else ""

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while part := stream.readline(LONGEST_LINE):
                line = part.decode(errors="backslashreplace").rstrip("\r\n")
                self._lines.append(line)
                self._log.write(line)


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
