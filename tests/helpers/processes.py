"""Starting ``writing_process`` and reading what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def writing(what: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """The process, killed (kill -9) at the end at the latest."""
    command = [sys.executable, "-m", "tests.helpers.writing_process", what, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line it says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the process ended with {process.wait()} before it said anything more"
    return json.loads(line)
