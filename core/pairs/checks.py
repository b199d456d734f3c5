"""Checks of pairs for the Models page, each in a process of its own: the app's process imports no library for them.

One check runs at a time; the latest findings are kept.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core import child
from core.pairs.findings import CheckReport, Finding

COMMAND = (sys.executable, "-m", "core.models.inspection")
KEEP = 20
"""Most findings that are kept."""


@dataclass(frozen=True, slots=True)
class CheckView:
    """A check at one moment: ``running`` until it has a ``finding``, or a ``problem`` when the check itself failed.
    ``share``: progress in [0, 1]; ``seconds``: since it began, or that it took."""

    name: str
    running: bool
    message: str
    share: float
    seconds: float
    finding: Finding | None
    problem: str


class Checks:
    """Runs checks and keeps their findings. Thread-safe. ``command`` gets the pair's name as its last argument and
    reports as core.models.inspection does."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = tuple(command)
        self._lock = threading.Lock()  # guards everything below
        self._views: OrderedDict[str, CheckView] = OrderedDict()
        self._began: dict[str, float] = {}
        self._process: subprocess.Popen[str] | None = None
        self._current = ""

    def start(self, name: str) -> None:
        """Starts a check of the pair ``name``, even if it was checked before; a check of another pair is stopped."""
        with self._lock:
            if self._current == name:
                return
            self._stop()
            self._began[name] = time.monotonic()
            self._put(CheckView(name, True, "starting", 0.0, 0.0, None, ""))
            try:
                process = subprocess.Popen(
                    [*self._command, name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                    env={**child.environment(), "OMP_NUM_THREADS": "1"},
                )
            except (OSError, ValueError) as error:  # ValueError: a null character in the name
                self._end(name, None, f"The check can't be started ({error}): check the name.")
                return
            self._process, self._current = process, name
        threading.Thread(target=self._follow, args=(process, name), name="check", daemon=True).start()

    def view(self, name: str) -> CheckView | None:
        """The check of ``name`` now; None when it was never started or is no longer kept."""
        with self._lock:
            view = self._views.get(name)
            if view is None or not view.running:
                return view
            return replace(view, seconds=time.monotonic() - self._began[name])

    def stop(self, name: str) -> None:
        """Stops the check of ``name`` if it runs."""
        with self._lock:
            if self._current == name:
                self._stop()

    def close(self) -> None:
        """Stops the running check."""
        with self._lock:
            self._stop()

    def _follow(self, process: subprocess.Popen[str], name: str) -> None:
        assert process.stdout is not None
        finding, problem = None, ""
        with process.stdout:
            for line in process.stdout:
                try:
                    report = CheckReport.from_line(line)
                except ValueError:
                    problem = "The check's answer can't be read: please report the pair's name."
                    break
                if report.finding is not None:
                    finding = report.finding
                    break
                with self._lock:
                    if self._process is process:
                        self._put(replace(self._views[name], message=report.message, share=report.share))
        process.kill()
        code = process.wait()
        if finding is None and not problem:
            problem = f"The checking process ended without an answer (exit code {code}): try again."
        with self._lock:
            if self._process is process:
                self._process, self._current = None, ""
                self._end(name, finding, problem)

    def _stop(self) -> None:
        process, name = self._process, self._current
        self._process, self._current = None, ""
        if process is not None:
            process.kill()  # its thread in _follow waits for it
            self._end(name, None, "Stopped.")

    def _end(self, name: str, finding: Finding | None, problem: str) -> None:
        took = time.monotonic() - self._began.pop(name)
        self._put(CheckView(name, False, "", 1.0, took, finding, problem))

    def _put(self, view: CheckView) -> None:
        self._views[view.name] = view
        self._views.move_to_end(view.name)
        while len(self._views) > KEEP:
            self._views.popitem(last=False)
