"""The connection to the DuckDB file, and its errors as sentences."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import DBAPIError

from core import settings
from core.errors import SpecLensError, StorageUnavailable
from storage.inspection import GO_ON, log_of

_CONFIG = {
    # few threads and little memory, since decoding needs both; extensions are never downloaded
    "threads": 2,
    "memory_limit": "1GB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # no automatic checkpoint: DuckDB 1.5.6 returns wrong texts to readers meanwhile (see storage.database)
    "checkpoint_threshold": "1TB",
    # of a new file: since this format a log names its database and the state it follows, and another one is refused
    "storage_compatibility_version": "v1.5.0",
}

_LOCK_HOLDER = re.compile(r"\(PID (\d+)\)")

_FULL = ("No space left on device", "File too large", "Disk quota exceeded")

_OUTAGE = (
    duckdb.IOException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
    duckdb.ConnectionException,
    OSError,
)


def default_path() -> Path:
    """The database of the app and of both command lines, whatever folder they are started in: ``speclens.duckdb`` in
    the folder that ``SPECLENS_DATA`` names, or in ``data/`` beside ``app.py`` where that is unset or empty."""
    return settings.data_folder() / "speclens.duckdb"


def database_path(url_or_path: str | Path) -> Path:
    """The file of a ``duckdb:///FILE`` URL or a path.

    Raises StorageUnavailable for other databases, and for a database in memory, which connections can't share.
    """
    text = str(url_or_path)
    if "://" in text:
        scheme, _, rest = text.partition(":///")
        if scheme != "duckdb" or not rest:
            raise StorageUnavailable(f"{text} is not a DuckDB file: write a path, or duckdb:///PATH.")
        text = rest
    if not text or text.startswith(":memory:"):
        raise StorageUnavailable("Runs are kept in a file, not in memory: name a path such as data/speclens.duckdb.")
    try:
        path = Path(text).expanduser()
        resolved = path.resolve()
        dangling = path.is_symlink() and not resolved.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise StorageUnavailable(f"The database {text!r} cannot be opened: {_unresolved(error)}. {GO_ON}") from error
    if dangling:
        raise StorageUnavailable(f"The database {path} is a link to {resolved}, which is missing. {GO_ON}")
    return resolved


def _unresolved(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return "symbolic links lead in a circle, or the home folder is unknown"
    return str(getattr(error, "strerror", None) or error)


def connect(path: Path) -> Engine:
    """An engine with a pooled connection per thread, after one successful connection.

    Raises StorageUnavailable when its folder cannot be made, and the errors of DuckDB for :func:`opening`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(f"The folder {path.parent} cannot be made: {error.strerror}.") from error
    engine = create_engine(
        URL.create("duckdb", database=str(path)),
        connect_args={"config": _CONFIG},
        pool_size=8,
        max_overflow=56,
        pool_timeout=30,
    )
    try:
        with engine.connect() as connection:
            # closing must not rewrite a file that turns out to be damaged: storage.database moves the log itself
            connection.exec_driver_sql("PRAGMA disable_checkpoint_on_shutdown")
            return engine
    except BaseException:
        engine.dispose()
        raise


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Raises StorageUnavailable for whatever error of DuckDB, the system or the file's content the block meets."""
    try:
        yield
    except SpecLensError:
        raise
    except Exception as error:
        raise StorageUnavailable(_refusal(path, error)) from error


def _refusal(path: Path, error: BaseException) -> str:
    message = reason(error)
    if "set lock on file" in message:
        holder = _LOCK_HOLDER.search(message)
        who = f"process {holder[1]}" if holder else "another process"
        return (
            f"The database {path} is in use by {who}: one process at a time can open it. "
            "Close that one (the app, or an export) and try again, or name another file."
        )
    if is_full(error):
        return f"The disk that holds {path} is full: free some room and start again."
    if "Permission denied" in message or "Read-only file system" in message:
        return f"The database {path} cannot be opened ({message}): allow this user to read and write it. {GO_ON}"
    if "WAL" in message and "does not match" in message and "checksum" not in message:
        return (
            f"The log {log_of(path)} is of another database than {path}, or of an earlier state of it. "
            "Nothing was changed. Put the file and the log that belong together side by side, or move the log away: "
            "runs that only the log held are lost then."
        )
    what = f"The log {log_of(path)} of the database" if "WAL" in message else f"The database {path}"
    return f"{what} cannot be read ({message}): it is damaged. {GO_ON}"


def cause(error: BaseException) -> BaseException:
    """DuckDB's own error inside SQLAlchemy's wrapper, or the error itself."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def reason(error: BaseException) -> str:
    """The first line of the message of DuckDB or the system."""
    inner = cause(error)
    message = str(inner).strip() or type(inner).__name__
    return message.splitlines()[0].rstrip(".")


def is_outage(error: BaseException) -> bool:
    """True when the same write may succeed later (disk, lock, conflict); False when the data itself is refused."""
    return isinstance(cause(error), _OUTAGE)


def is_full(error: BaseException) -> bool:
    """True when the disk (or a quota) has no room."""
    inner = cause(error)
    if isinstance(inner, OSError) and inner.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    return any(sign in str(inner) for sign in _FULL)


def refusal(error: OSError) -> str:
    """The reason why a file cannot be written, as the end of a sentence; for a full disk, with advice."""
    return "the disk is full, so free some room" if is_full(error) else str(error.strerror or error)


def is_conflict(error: BaseException) -> bool:
    """True when two transactions conflicted, so that the write should be tried again at once."""
    inner = cause(error)
    return isinstance(inner, duckdb.TransactionException) and "onflict" in str(inner)


def is_broken(error: BaseException) -> bool:
    """True when DuckDB has invalidated the open database: it must be closed and opened again."""
    return isinstance(cause(error), (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException))
