"""The writer: the records that wait for it, and one thread that writes them in order and retries while the app runs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from duckdb_sqlalchemy import insert
from sqlalchemy import Connection, Table, func, select, update

from core.errors import StorageUnavailable
from core.records import Ended, Round, Started, Summary
from core.types import RunSpec
from storage.connect import is_broken, is_conflict, is_full, is_outage, reason
from storage.database import Database
from storage.round_rows import insert_rounds
from storage.run_rows import ColumnValues, ended_row, fingerprint_row, started_row, submitted_row
from storage.schema import fingerprints, rounds, runs


@dataclass(frozen=True, slots=True)
class RunSubmitted:
    """A run entered the queue."""

    run_id: str
    spec: RunSpec
    session: str
    at: datetime


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run's prompt is in the cache."""

    run_id: str
    started: Started
    at: datetime


@dataclass(frozen=True, slots=True)
class RunRounds:
    """Whole rounds of a run, in order of index."""

    run_id: str
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended. ``missing``: number of its rounds that were dropped for lack of room in memory."""

    run_id: str
    ended: Ended
    summary: Summary | None
    at: datetime
    missing: int


Record = RunSubmitted | RunStarted | RunRounds | RunEnded

Write = Callable[[Connection, Sequence[Record], bool], None]
"""Writes records in the connection's transaction. The flag is True when an earlier attempt may have been committed."""


def write_batch(connection: Connection, records: Sequence[Record], again: bool) -> None:
    """Writes ``records`` in order; with ``again``, leaves out what the database already has."""
    arrived: list[tuple[str, Sequence[Round]]] = []
    for record in records:
        match record:
            case RunSubmitted():
                row = submitted_row(record.run_id, record.spec, record.session, record.at)
                _insert(connection, runs, row, again)
            case RunStarted():
                _update(connection, record.run_id, started_row(record.started, record.at))
                if record.started.fingerprint is not None:
                    row = fingerprint_row(record.run_id, record.started.fingerprint)
                    _insert(connection, fingerprints, row, again)
            case RunRounds():
                stored = _stored(connection, record.run_id) if again else -1
                arrived.append((record.run_id, [one for one in record.rounds if one.index > stored]))
            case RunEnded():
                _update(connection, record.run_id, ended_row(record.ended, record.summary, record.at, record.missing))
    insert_rounds(connection, arrived)


def _insert(connection: Connection, table: Table, row: ColumnValues, again: bool) -> None:
    statement = insert(table).values(**row)
    connection.execute(statement.on_conflict_do_nothing() if again else statement)


def _update(connection: Connection, run_id: str, row: ColumnValues) -> None:
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(**row))


def _stored(connection: Connection, run_id: str) -> int:
    """Index of the run's last stored round; −1 when there is none."""
    last = connection.execute(select(func.max(rounds.c.round_index)).where(rounds.c.run_id == run_id)).scalar()
    return -1 if last is None else last


log = logging.getLogger(__name__)

GATHER_S = 0.35
"""How long records are gathered for one transaction, in seconds. A transaction takes about 50 ms of processor time from
decoding, however small it is; a record must be on disk within 500 ms (design.md)."""

MAX_WAITING = 50_000
"""Most rounds kept in memory while the database cannot be written; further rounds are dropped and counted."""

MAX_AT_ONCE = 2_000
"""Most rounds in one transaction, unless a single record has more."""

LOG_BYTES = 16 * 2**20
"""Size of the log at which it is moved into the file before the end of a run, in bytes."""

CONFLICTS = 5
"""Most retries of a task whose transaction conflicts with another one."""


T = TypeVar("T")


class _Task:
    """A function for the writer's thread to call between batches, and the future of its result."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do
        self.result: Future[Any] = Future()


class Writer:
    """Writes records to a database on its own thread.

    A full or broken disk loses nothing while the app runs: records wait in memory, ``trouble`` reports it, and writing
    is retried until it succeeds. A record that the database refuses is dropped alone, and ``trouble`` reports it.
    """

    def __init__(self, database: Database, write: Write, gather_s: float, retry_s: float, most_waiting: int) -> None:
        self._database = database
        self._write = write
        self._gather_s = gather_s
        self._retry_s = retry_s
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._queue: deque[Record | _Task] = deque()
        self._handed_in = 0
        self._done = 0
        self._hurried = 0
        self._waiting_rounds = 0
        self._dropped: dict[str, int] = {}
        self._outage: str | None = None
        self._lost: str | None = None
        self._closing = False
        self._give_up = False
        self._thread = threading.Thread(target=self._run, name="storage-writer", daemon=True)
        self._thread.start()

    # -- called from any thread -------------------------------------------------------------------------------------

    def hand_in(self, record: Record) -> None:
        """Queues a record and returns at once. Rounds beyond ``most_waiting`` are dropped and counted."""
        with self._changed:
            if isinstance(record, RunRounds):
                count = len(record.rounds)
                # the stored rounds must be the run's first ones: after a dropped round, later ones are dropped too
                if record.run_id in self._dropped or self._waiting_rounds + count > self._most_waiting:
                    self._dropped[record.run_id] = self._dropped.get(record.run_id, 0) + count
                    return
                self._waiting_rounds += count
            self._append(record)

    def dropped(self, run_id: str) -> int:
        """The number of the run's dropped rounds, which is forgotten by this call: for the run's end."""
        with self._changed:
            return self._dropped.pop(run_id, 0)

    def call(self, do: Callable[[], T], timeout_s: float = 60.0) -> T:
        """Calls ``do`` on the writer's thread after everything that was queued before; returns its result.

        Raises StorageUnavailable after ``timeout_s`` seconds."""
        task = _Task(do)
        self._append(task)
        try:
            return task.result.result(timeout=timeout_s)
        except TimeoutError:
            raise StorageUnavailable(
                self.trouble or f"The database {self._database.path} is busy: try again."
            ) from None

    def checkpoint_later(self) -> None:
        """Queues a checkpoint after everything that was queued before, without waiting for it."""
        self._append(_Task(self._checkpoint))

    def _append(self, item: Record | _Task) -> None:
        with self._changed:
            if self._closing:
                raise StorageUnavailable(f"The database {self._database.path} is closed: nothing more can be stored.")
            self._queue.append(item)
            self._handed_in += 1
            self._changed.notify_all()

    @property
    def trouble(self) -> str | None:
        """A sentence for the page while something is not, or could not be, stored; None when all is well."""
        with self._changed:
            if self._outage is None:
                return self._lost
            sentence = f"{self._outage} {self._waiting_rounds} rounds wait in memory until it can be written again."
            if dropped := sum(self._dropped.values()):
                sentence += f" There was no room in memory for {dropped} more."
            return sentence

    def flush(self, timeout_s: float) -> None:
        """Waits until everything queued before is on disk. Raises StorageUnavailable after ``timeout_s`` seconds."""
        with self._changed:
            goal = self._hurried = self._handed_in
            self._changed.notify_all()
            if self._changed.wait_for(lambda: self._done >= goal, timeout=timeout_s):
                return
        path = self._database.path
        raise StorageUnavailable(self.trouble or f"The database {path} was not written within {timeout_s:.0f} s.")

    def close(self, timeout_s: float) -> None:
        """Writes what is queued and ends the thread. Raises StorageUnavailable, with the number of lost rounds, when
        that takes longer than ``timeout_s`` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout=timeout_s)
        with self._changed:
            self._give_up = True
            self._changed.notify_all()
        self._thread.join(timeout=timeout_s)
        if self._done < self._handed_in:
            for item in self._queue:
                if isinstance(item, _Task):
                    item.result.set_exception(StorageUnavailable(f"The database {self._database.path} is closed."))
            raise StorageUnavailable(
                f"{self._outage or f'The database {self._database.path} was not written.'} "
                f"It closed before {self._waiting_rounds} rounds could be stored; they are lost."
            )

    # -- the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while item := self._next():
            if isinstance(item, _Task):
                self._perform(item)
            elif not self._store(item):
                return  # given up while closing

    def _next(self) -> _Task | list[Record] | None:
        """The next task, or the records gathered within ``gather_s``; None when closing and the queue is empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            # do not gather longer while a caller waits for a task or a flush
            self._changed.wait_for(lambda: self._closing or self._asked(), timeout=self._gather_s)
            if not self._queue:
                return None
            if isinstance(first := self._queue[0], _Task):
                self._queue.popleft()
                return first
            batch: list[Record] = []
            count = 0
            while self._queue and count < MAX_AT_ONCE and not isinstance(item := self._queue[0], _Task):
                batch.append(item)
                count += len(item.rounds) if isinstance(item, RunRounds) else 0
                self._queue.popleft()
            return batch

    def _asked(self) -> bool:
        return bool(self._queue) and (self._hurried > self._done or isinstance(self._queue[-1], _Task))

    def _perform(self, task: _Task) -> None:
        try:
            task.result.set_result(_retried(task.do))
        except Exception as error:
            if is_outage(error):
                outage = StorageUnavailable(f"{self._sentence(error)} Try again then.")
                outage.__cause__ = error
                error = outage
            task.result.set_exception(error)
        self._finish(1, 0)

    def _store(self, records: list[Record]) -> bool:
        """Writes records, retrying until it succeeds; False when closing ended that. Refused records are dropped."""
        again = False
        while True:
            try:
                with self._database.write() as connection:
                    self._write(connection, records, again)
                break
            except Exception as error:
                if is_outage(error) or isinstance(error, StorageUnavailable):
                    again = True
                    if not self._wait_out(error):
                        return False
                elif len(records) > 1:
                    return all(self._store(part) for part in _parts(records))
                else:
                    self._lose(records[0], error)
                    break
        with self._changed:
            self._outage = None
        self._finish(len(records), sum(len(item.rounds) for item in records if isinstance(item, RunRounds)))
        if any(isinstance(item, RunEnded) for item in records) or self._database.log_bytes > LOG_BYTES:
            self._checkpoint()
        return True

    def _checkpoint(self) -> None:
        try:
            self._database.checkpoint()
        except Exception as error:
            # the records are safe in the log; a database that the error invalidated must be opened again
            log.warning("storage: checkpoint failed: %s", reason(error))
            if is_broken(error):
                self._database.restart()

    def _wait_out(self, error: Exception) -> bool:
        """Reports the outage and waits before the next attempt; False when closing has timed out."""
        if is_conflict(error):
            return not self._give_up
        log.warning("storage: %s", reason(error))
        if is_broken(error):
            self._database.restart()
        with self._changed:
            self._outage = self._sentence(error)
            self._changed.wait_for(lambda: self._give_up, timeout=self._retry_s)
            return not self._give_up

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, StorageUnavailable):
            return str(error)
        if is_full(error):
            return f"The disk that holds {self._database.path} is full: free some room."
        return f"The database {self._database.path} cannot be written ({reason(error)})."

    def _lose(self, record: Record, error: Exception) -> None:
        log.error("storage: %s of run %s is refused", type(record).__name__, record.run_id, exc_info=error)
        what = {RunSubmitted: "settings", RunStarted: "start", RunRounds: "rounds", RunEnded: "end"}[type(record)]
        with self._changed:
            self._lost = f"The {what} of run {record.run_id} could not be stored ({reason(error)}): run it again."

    def _finish(self, items: int, rounds: int) -> None:
        with self._changed:
            self._done += items
            self._waiting_rounds -= rounds
            self._changed.notify_all()


def _retried(do: Callable[[], T]) -> T:
    """Calls ``do``, again if its transaction conflicted with another one and was rolled back."""
    for _ in range(CONFLICTS):
        try:
            return do()
        except Exception as error:
            if not is_conflict(error):
                raise
            log.info("storage: a conflict, retried: %s", reason(error))
    return do()


def _parts(records: list[Record]) -> list[list[Record]]:
    """The records in smaller batches, in order: by run, or one by one when all are of one run."""
    by_run: dict[str, list[Record]] = {}
    for record in records:
        by_run.setdefault(record.run_id, []).append(record)
    return list(by_run.values()) if len(by_run) > 1 else [[record] for record in records]
