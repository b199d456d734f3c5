"""The open database: a connection per thread for readers, one writer, bulk inserts, and reopening after a fault."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb_sqlalchemy import checkpoint, insert_from_arrow
from sqlalchemy import BigInteger, Boolean, Connection, DateTime, Double, String, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from core.errors import StorageUnavailable
from storage.connect import cause, opening, reason
from storage.copies import keep_log
from storage.inspection import GO_ON, inspect, log_of, unread_log
from storage.migrate import head, open_current

log = logging.getLogger(__name__)

_open: set[Path] = set()
_open_lock = threading.Lock()

WAIT_S = 10.0
"""Longest that readers wait for a checkpoint or reopening, and that reopening waits for readers, in seconds."""

_OURS = (duckdb.BinderException, duckdb.ParserException, duckdb.NotImplementedException)
"""Errors of a query that is wrong itself, whatever the file holds."""

READERS_S = 1.0
"""Longest that a checkpoint waits for readers to finish, in seconds; new readers wait for the checkpoint."""


class Database:
    """One open file. ``read()`` is for any thread; ``write()``, ``checkpoint()`` and ``restart()`` for the writer's.
    ``notes``: sentences for the page about what opening found and which copies it kept.

    Nothing else in this process may open the file, not even to copy it: closing that handle would release the lock
    that keeps other processes out.
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
            with opening(path):
                self.notes = self._open()
        except BaseException:
            self._forget()
            raise

    def _open(self) -> tuple[str, ...]:
        inspect(self.path)
        notes: list[str] = []
        unread = unread_log(self.path)
        kept = self._keep_log(unread) if unread else None
        try:
            opened = open_current(self.path)
        except BaseException:
            if kept is not None:
                kept.unlink(missing_ok=True)  # the log itself is as it was
            raise
        self._engine = opened.engine
        # an open connection keeps the file locked while the pool is idle
        self._anchor = self._engine.connect()
        if kept is not None:
            notes.append(
                f"The last {unread:,} bytes of the log {log_of(self.path)} could not be read: the app or the machine "
                f"stopped while they were written, or they are damaged. Runs may lack what they held. The log as it "
                f"was found is kept as {kept}."
            )
        if opened.copy is not None:
            notes.append(
                f"The database was brought to schema {head()}. As it was before, it is kept as {opened.copy}: delete "
                "that copy when you no longer want to go back."
            )
        return tuple(notes)

    def _keep_log(self, unread: int) -> Path:
        try:
            return keep_log(self.path)
        except OSError as error:
            raise StorageUnavailable(
                f"The last {unread:,} bytes of the log {log_of(self.path)} cannot be read, and the log could not be "
                f"copied before it is written again ({error.strerror}). {GO_ON}"
            ) from error

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
        """A connection for one short query of the calling thread. Raises StorageUnavailable for faults of the file."""
        try:
            with self._entered(), self._engine.connect() as connection:
                yield connection
        except (DBAPIError, UnicodeDecodeError) as error:
            if isinstance(cause(error), _OURS):
                raise
            raise StorageUnavailable(f"The database {self.path} cannot be read ({reason(error)}).") from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, committed at the end; errors are raised unchanged, for the writer to classify.

        Reopens the file first if it is shut. Raises StorageUnavailable when that fails; the next call tries again.
        """
        if self._shut:
            self._reopen()
        with self._entered(), self._engine.begin() as connection:
            yield connection

    def checkpoint(self) -> None:
        """Moves the log into the file; postponed to the next call when readers do not finish or the disk is full.

        Readers wait meanwhile: in DuckDB 1.5.6, about one in five hundred reads of updated and deleted rows during a
        checkpoint returned one column's text in another.
        """
        try:
            with self._alone() as alone:
                if alone:
                    with self._engine.connect() as connection:
                        checkpoint(connection)
                else:
                    log.info("checkpoint postponed: there are readers")
        except DBAPIError as error:
            if not isinstance(cause(error), (duckdb.TransactionException, duckdb.IOException)):
                raise
            log.info("checkpoint postponed: %s", reason(error))

    @property
    def log_bytes(self) -> int:
        """Size of the log that the next checkpoint moves into the file, in bytes."""
        try:
            return log_of(self.path).stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keeps new readers out. Yields True once no other connection is in use, False when readers take too long."""
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
        """Closes every connection and opens the file again, as is necessary after DuckDB has invalidated it.

        If the file cannot be opened, each later ``write()`` tries again; readers wait up to :data:`WAIT_S`.
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
        with opening(self.path):
            self._engine = open_current(self.path).engine
            self._anchor = self._engine.connect()
        with self._gate:
            self._shut = False
            self._gate.notify_all()

    def close(self) -> None:
        """Moves the log into the file and closes it. Later reads raise StorageUnavailable."""
        if not self._shut:
            try:
                self.checkpoint()
            except DBAPIError as error:
                log.warning("the log stays beside %s: %s", self.path, reason(error))
        self.abandon()

    def abandon(self) -> None:
        """Closes the file as it is, with its log beside it: for one that turns out to be damaged."""
        self._shut_connections()
        self._forget()


def insert_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Appends ``rows`` in the connection's transaction: values made by ``storage.values``, in the order of the table's
    columns. Tuples rather than mappings, because a long run has a hundred of them per round."""
    if rows:
        schema = arrow_schema(table)
        values = zip(*rows, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(values, schema, strict=True)]
        insert_from_arrow(connection, table, pa.Table.from_arrays(arrays, schema=schema))


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """The table's columns as Arrow types, in order."""
    return pa.schema([(column.name, _arrow_type(column.type)) for column in table.columns])


def _arrow_type(kind: TypeEngine) -> pa.DataType:
    match kind:
        case String():
            return pa.string()
        case BigInteger():
            return pa.int64()
        case Double():
            return pa.float64()
        case Boolean():
            return pa.bool_()
        case DateTime():
            return pa.timestamp("us")
        case _:
            raise TypeError(f"no Arrow type for column type {kind!r}")
