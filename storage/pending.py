"""The records that wait for the writer, and the transaction that writes a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duckdb_sqlalchemy import insert
from sqlalchemy import Connection, Table, func, select, update

from core.records import Ended, Round, Started, Summary
from core.types import RunSpec
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
