"""Copies that are kept beside a database: of the version before a migration, and of a log that was not read to its end.

The file must be closed: closing any handle of an open one would release the lock that keeps other processes out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from storage.inspection import log_of


def keep_version(path: Path, version: str) -> Path:
    """Copies a database, and its log if there is one, under a name with ``version``; completely or not at all.

    Returns the copy. Raises OSError when there is no room.
    """
    target = _unused(lambda number: path.with_name(f"{path.stem}.schema-{version}{number}{path.suffix}"))
    log = log_of(path)
    if log.exists():
        _copy(log, log_of(target))
    try:
        _copy(path, target)
    except OSError:
        log_of(target).unlink(missing_ok=True)
        raise
    return target


def keep_log(path: Path) -> Path:
    """Copies the log of a database, completely or not at all.

    Returns the copy. Raises OSError when there is no room.
    """
    log = log_of(path)
    target = _unused(lambda number: log.with_name(f"{log.name}.as-found{number}"))
    _copy(log, target)
    return target


def _unused(name: Callable[[str], Path]) -> Path:
    candidates = (name("" if number == 1 else f"-{number}") for number in count(1))
    return next(path for path in candidates if not path.exists() and not log_of(path).exists())


def _copy(source: Path, target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    try:
        shutil.copyfile(source, partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
