"""Starts ``writing_process`` and reads its reports."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def writing(what: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """The running process, killed (kill -9) at the end of the ``with`` block."""
    command = [sys.executable, "-m", "tests.helpers.writing_process", what, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def reported(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next report of the process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the process ended with {process.wait()} without another report"
    return json.loads(line)


def killed(pid: int, timeout_s: float = 30.0) -> None:
    """Kills a process that another thread may reap at any moment, and waits for its end: through a file descriptor of
    the process itself, since its number may be another's, or nobody's, the moment after."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        ended, _, _ = select.select([process], [], [], timeout_s)
        assert ended, f"process {pid} lives {timeout_s:.0f} s after it was killed"
    finally:
        os.close(process)
