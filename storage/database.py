"""The open database: a connection per thread for readers, one writer, and closing and opening again after a fault."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from duckdb_sqlalchemy import checkpoint
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from core.errors import StorageUnavailable
from storage.connect import cause, is_outage, reason
from storage.migrate import open_current

log = logging.getLogger(__name__)

_open: set[Path] = set()
_open_lock = threading.Lock()

WAIT_S = 10.0
"""Longest a reader waits for a database that is being opened again or checkpointed, and the reverse, in seconds."""

READERS_S = 1.0
"""How long a checkpoint waits for readers to leave, in seconds; meanwhile new ones wait for it."""


class Database:
    """One open file. ``read()`` from any thread; ``write()``, ``checkpoint()``, ``restart()`` from the writer's only.

    Nothing else in this process may open the file by other means, not even to copy it: closing such a handle drops
    the lock that keeps other processes out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gate = threading.Condition()
        self._inside = 0
        self._shut = False
        self._checkpointing = False
        with _open_lock:
            if path in _open:
                raise StorageUnavailable(
                    f"The database {path} is already open in this process: use its store, or close it first."
                )
            _open.add(path)
        try:
            self._engine = open_current(path)
            # a connection held throughout keeps the file locked while the pool is idle
            self._anchor = self._engine.connect()
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        with _open_lock:
            _open.discard(self.path)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._gate:
            if not self._gate.wait_for(lambda: not (self._shut or self._checkpointing), timeout=WAIT_S):
                if self._shut:
                    raise StorageUnavailable(f"The database {self.path} is closed: start the app again.")
                raise StorageUnavailable(f"The database {self.path} is busy: try again.")
            self._inside += 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1
                self._gate.notify_all()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection of this thread's own for one short reading; faults of the file become StorageUnavailable."""
        try:
            with self._entered(), self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            if not is_outage(error):
                raise
            raise StorageUnavailable(f"The database {self.path} cannot be read ({reason(error)}).") from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, committed at the end; errors come as they are, for the writer to judge.

        Opens the file again first when it was shut (StorageUnavailable when that fails; the next call tries again).
        """
        if self._shut:
            self._reopen()
        with self._entered(), self._engine.begin() as connection:
            yield connection

    def checkpoint(self) -> None:
        """Moves the log into the file; left for the next time when readers are in the way or the disk is full.

        Nobody reads meanwhile: a reader beside a checkpoint was seen to get one column's text in another's place
        (DuckDB 1.5.6), about once in five hundred readings of rows that are updated and deleted.
        """
        try:
            with self._alone() as alone:
                if alone:
                    with self._engine.connect() as connection:
                        checkpoint(connection)
                else:
                    log.info("checkpoint put off: readers are in the way")
        except DBAPIError as error:
            if not isinstance(cause(error), (duckdb.TransactionException, duckdb.IOException)):
                raise
            log.info("checkpoint put off: %s", reason(error))

    @property
    def log_bytes(self) -> int:
        """Size of the log that the next checkpoint moves into the file."""
        try:
            return self.path.with_name(self.path.name + ".wal").stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """True while no other connection is in use and none can be taken; False when readers stay too long."""
        with self._gate:
            self._checkpointing = True
            alone = self._gate.wait_for(lambda: self._inside == 0, timeout=READERS_S) and not self._shut
        try:
            yield alone
        finally:
            with self._gate:
                self._checkpointing = False
                self._gate.notify_all()

    def restart(self) -> None:
        """Closes every connection and opens the file again, which alone helps after DuckDB has invalidated it.

        When it cannot be opened, each later ``write()`` tries again; readers that come meanwhile wait :data:`WAIT_S`.
        """
        self._shut_connections()
        try:
            self._reopen()
        except StorageUnavailable as error:
            log.warning("%s", error)

    def _shut_connections(self) -> None:
        with self._gate:
            self._shut = True
            if not self._gate.wait_for(lambda: self._inside == 0, timeout=WAIT_S):
                log.warning("%d readers still hold %s while it closes", self._inside, self.path)
        self._anchor.close()
        self._engine.dispose()

    def _reopen(self) -> None:
        self._engine = open_current(self.path)
        self._anchor = self._engine.connect()
        with self._gate:
            self._shut = False
            self._gate.notify_all()

    def close(self) -> None:
        """Closes the file; DuckDB moves its log in. Later reads raise StorageUnavailable."""
        self._shut_connections()
        self._forget()
