"""One life of the engine's process: its pipes, a thread that follows what it reports, and its end in words."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from core.errors import BadInput, EngineFault
from core.jobs.child_log import ChildLog
from core.worker.protocol import Complaint, Message, Report, decode_report, encode

REAP_S = 5.0
"""How long a process that closed its output may take to end."""


class WorkerProcess:
    """Runs ``command``; its reports go to ``heard`` and its end, once, to ``over``, both in one thread of its own.

    Raises EngineFault when it can't be started. ``send`` must not be called by two threads at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: ChildLog,
        heard: Callable[[Report], None],
        over: Callable[[WorkerProcess], None],
    ) -> None:
        # The worker must find this package wherever the app was started; its folder stays the app's.
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except OSError as error:
            sentence = f"The engine process can't be started ({error}): install the requirements with make run."
            raise EngineFault(sentence) from error
        assert self._process.stderr is not None
        self._said = log.follow(self._process.stderr)
        self._heard = heard
        self._over = over
        self._reason: str | None = None
        self._thread = threading.Thread(target=self._follow, name="engine reports", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def send(self, message: Message) -> bool:
        """Write one command; False when the process no longer listens."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # ValueError: already closed
            return False
        return True

    def kill(self, reason: str | None = None) -> None:
        """End it now; ``reason`` is the sentence that ``ending`` gives."""
        self._reason = self._reason or reason
        self._process.kill()

    def end_input(self) -> None:
        """Close its input, whereupon it exits."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def reap(self) -> None:
        """Wait until it is gone, its last words included."""
        try:
            self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it closed its output and yet goes on
            self._process.wait()
        self._said.settle()

    def join(self) -> None:
        """Wait until its end has been told."""
        self._thread.join()

    def last_words(self) -> str:
        """Its last line on stderr as an appendix to a sentence, or nothing."""
        return self._said.last_words()

    def ending(self) -> str:
        """How it ended and its last words, as a sentence."""
        return self._reason or f"The engine process {_in_words(self._process.returncode)}.{self.last_words()}"

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a line: only whole rounds count
                try:
                    report = decode_report(line)
                except BadInput as error:
                    report = Complaint(message=str(error))
                if isinstance(report, Complaint):
                    self.kill(f"The engine process was not understood and stopped. {report.message}")
                    break
                self._heard(report)
            self.reap()
        self._over(self)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unnamed"
    hint = "; if nobody did that on purpose, the machine ran out of memory: lower the settings or choose a smaller pair"
    return f"was killed by signal {-code} ({name}{hint if -code == signal.SIGKILL else ''})"
