"""A look at a database file and its log before DuckDB opens them: DuckDB waits for a pipe for good, makes an empty
database where only the log is left, and passes over the rest of a log whose end it does not find."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import BinaryIO

from core.errors import StorageUnavailable

GO_ON = (
    "Nothing was changed. Restore a copy of the database, or set SPECLENS_DATA to another folder, where a new one "
    "is made."
)
"""What to do about a file that can't be used; a sentence about the file comes before it."""

MAGIC = b"DUCK"
HEADERS = 3 * 4096
"""Bytes before the first block: the main header and two database headers, of which the later one counts
(DuckDB 1.5.6, single_file_block_manager.cpp)."""

LOG_START = b"\x64\x00\x62"
"""Start of every log: field 100 (the kind of an entry) with kind 98 (version)."""
LOG_VERSION_END = b"\xff\xff"
LOG_FRAME = struct.Struct("<QQ")
"""Before each further entry of a log: its size in bytes and its checksum (write_ahead_log.cpp)."""


def log_of(path: Path) -> Path:
    """DuckDB's log of changes that are not in the file yet."""
    return path.with_name(path.name + ".wal")


def inspect(path: Path) -> None:
    """Raises StorageUnavailable for what DuckDB must not open: not a file, another program's file, a file cut short, a
    log that is none, or a log whose database is missing. A path without file and log is fine: a new file is made."""
    log = log_of(path)
    for beside in (log, path.with_name(log.name + ".checkpoint"), path.with_name(log.name + ".recovery")):
        _is_file(beside, f"The log {beside} of the database")
    start = _start(log)
    if not _is_file(path, f"The database {path}"):
        if start:
            raise StorageUnavailable(f"The database {path} is missing, but its log {log} is there. {GO_ON}")
        return
    _is_whole(path)
    if not LOG_START.startswith(start):
        raise StorageUnavailable(
            f"{log} lies where the database {path} has its log, but is not a log of DuckDB. "
            "Nothing was changed. Move it away and start again; runs that only the log held are lost."
        )


def _is_file(path: Path, name: str) -> bool:
    """True for a file, False where there is nothing. Raises StorageUnavailable for anything else."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # a folder that is missing is made, or refused by its name
        return False
    except OSError as error:
        raise StorageUnavailable(f"{name} cannot be opened: {error.strerror}. {GO_ON}") from error
    if stat.S_ISREG(mode):
        return True
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    raise StorageUnavailable(f"{name} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file. {GO_ON}")


def _start(log: Path) -> bytes:
    """The first bytes of the log, as many as every log begins with; none without a log."""
    try:
        with log.open("rb") as file:
            return file.read(len(LOG_START))
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StorageUnavailable(f"The log {log} cannot be read: {error.strerror}. {GO_ON}") from error


def _is_whole(path: Path) -> None:
    try:
        with path.open("rb") as file:
            headers = file.read(HEADERS)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise StorageUnavailable(f"The database {path} cannot be read: {error.strerror}. {GO_ON}") from error
    if headers[8:12] != MAGIC:
        what = "an empty file" if size == 0 else "not a DuckDB database"
        raise StorageUnavailable(f"{path} is {what}. {GO_ON}")
    if len(headers) < HEADERS:
        raise _cut(path, size, HEADERS)
    # checksum, iteration, first metadata block, free list, number of blocks, bytes of a block
    _, _, _, _, blocks, block_bytes = max(
        (struct.unpack_from("<QQqqQQ", headers, start) for start in (4096, 8192)), key=lambda header: header[1]
    )
    # a header that is itself damaged claims anything, and DuckDB finds its checksum wrong
    if size < (whole := HEADERS + blocks * block_bytes) and whole < 2**50:
        raise _cut(path, size, whole)


def _cut(path: Path, size: int, whole: int) -> StorageUnavailable:
    return StorageUnavailable(f"The database {path} is cut short: {size:,} bytes of {whole:,} are there. {GO_ON}")


def unread_log(path: Path) -> int:
    """Bytes at the end of the log that DuckDB passes over without a word, since an entry's size goes past the log's
    end: written when the machine stopped, or damaged."""
    log = log_of(path)
    if not log.exists():
        return 0
    size = log.stat().st_size
    with log.open("rb") as file:
        return size - _last_whole_entry(file, size)


def _last_whole_entry(file: BinaryIO, size: int) -> int:
    start = file.read(256).find(LOG_VERSION_END)
    if start < 0:
        return 0
    end = start + len(LOG_VERSION_END)
    while end + LOG_FRAME.size <= size:
        file.seek(end)
        entry, _ = LOG_FRAME.unpack(file.read(LOG_FRAME.size))
        if end + LOG_FRAME.size + entry > size:
            break
        end += LOG_FRAME.size + entry
    return end
