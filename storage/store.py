"""The store: writes runs to one DuckDB file as they happen; also labels, archives and deletes them.

A record is on disk within 500 ms: records are gathered for :data:`storage.writer.GATHER_S`, then committed together.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

from sqlalchemy import Table, delete, select, update

from core.errors import BadInput
from core.records import TERMINAL, Ended, Round, Started, Summary
from core.types import RunSpec
from storage.connect import database_path, opening
from storage.database import Database
from storage.labels import clean_name, clean_note, clean_tags, write_label, write_tags
from storage.recovery import delete_part, recover
from storage.schema import CHILDREN, runs
from storage.values import text
from storage.writer import (
    GATHER_S,
    MAX_WAITING,
    RunEnded,
    RunRounds,
    RunStarted,
    RunSubmitted,
    Write,
    Writer,
    write_batch,
)

DELETING_S = 600.0
"""Timeout of the deletion from one table, in seconds."""


class Store:
    """A :class:`core.jobs.recorder.RunSink` over one DuckDB file, and the connections for ``storage.queries``.

    Opening migrates the file (after copying it) and ends runs that a dead process left unfinished; ``interrupted`` has
    their ids. Raises :class:`StorageUnavailable`: locked, newer schema, not a database, damaged, no room. A file that
    is refused stays as it is. Calls of the sink never wait for the disk. ``write`` and the times are parameters for
    tests.
    """

    def __init__(
        self,
        url_or_path: str | Path,
        *,
        write: Write = write_batch,
        gather_s: float = GATHER_S,
        retry_s: float = 1.0,
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self.path = database_path(url_or_path)
        self.database = Database(self.path)
        try:
            with opening(self.path):
                self.interrupted = tuple(recover(self.database))
        except BaseException:
            self.database.abandon()
            raise
        self._writer = Writer(self.database, write, gather_s, retry_s, most_waiting)
        self._closing = threading.Lock()
        self._closed = False
        atexit.register(self.close)

    def submitted(self, run_id: str, spec: RunSpec, session: str, at: datetime) -> None:
        """A run entered the queue; its row is on disk within 500 ms."""
        self._writer.hand_in(RunSubmitted(run_id, spec, session, at))

    def started(self, run_id: str, started: Started, at: datetime) -> None:
        """The run's prompt is in the cache."""
        self._writer.hand_in(RunStarted(run_id, started, at))

    def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
        """Whole rounds of the run, in order of index; they are stored together or not at all."""
        self._writer.hand_in(RunRounds(run_id, tuple(rounds)))

    def ended(self, run_id: str, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """The run ended: its last rounds, summary and status are written in one transaction."""
        self._writer.hand_in(RunEnded(run_id, ended, summary, at, self._writer.dropped(run_id)))

    @property
    def trouble(self) -> str | None:
        """A sentence for the page while something is not, or could not be, stored; None when all is well."""
        return self._writer.trouble

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the page about what opening the file found, and which copies it kept."""
        return self.database.notes

    def flush(self, timeout_s: float = 30.0) -> None:
        """Waits until everything that was handed in before is on disk.

        Raises StorageUnavailable when that takes longer than ``timeout_s`` seconds.
        """
        self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Writes what is queued, then closes the file. A second call does nothing.

        Raises StorageUnavailable, with the number of lost rounds, when that fails for ``timeout_s`` seconds.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            try:
                self._writer.close(timeout_s)
            finally:
                self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def delete(self, run_ids: Sequence[str]) -> int:
        """Deletes ended runs with all their parts; returns how many there were.

        Raises BadInput when one of them is still queued or running: nothing is deleted then. New records are written
        between the steps of a deletion. The file does not shrink, but its free space is used again.
        """
        asked = list(run_ids)
        # the runs' own rows first: if the process dies afterwards, the next start sweeps their parts
        found = self._writer.call(lambda: self._delete(asked))
        if found:
            for table in CHILDREN:
                self._writer.call(lambda table=table: self._delete_part(table, found), timeout_s=DELETING_S)
            # the checkpoint rewrites blocks with deleted rows, seconds for thousands of runs: do not wait for it
            self._writer.checkpoint_later()
        return len(found)

    def archive(self, run_ids: Sequence[str], archived: bool = True) -> int:
        """Archives runs, or with False takes them back; returns how many were found."""
        return self._writer.call(lambda: self._archive(list(run_ids), archived))

    def rename(self, run_id: str, name: str | None) -> None:
        """Names the run; an empty name or None removes it.

        Raises BadInput for an unknown run and for a name longer than :data:`storage.labels.MAX_NAME`.
        """
        cleaned = clean_name(name)
        self._writer.call(lambda: self._label(run_id, name=cleaned))

    def annotate(self, run_id: str, note: str | None) -> None:
        """Sets the run's note; an empty note or None removes it.

        Raises BadInput for an unknown run and for a note longer than :data:`storage.labels.MAX_NOTE`.
        """
        cleaned = clean_note(note)
        self._writer.call(lambda: self._label(run_id, note=cleaned))

    def tag(self, run_ids: Sequence[str], add: str | Iterable[str] = (), remove: str | Iterable[str] = ()) -> int:
        """Adds tags to runs and removes others; returns how many of the runs were found.

        Raises BadInput and changes nothing for an empty or too long tag, a tag in both, too many tags on one run.
        """
        more, less = clean_tags(add), clean_tags(remove)
        if both := sorted(set(more) & set(less)):
            raise BadInput(f"The tag {both[0]!r} cannot be added and taken away at once: choose one.")
        return self._writer.call(lambda: self._tag(list(run_ids), more, less))

    def _label(self, run_id: str, **changes: str | None) -> int:
        with self.database.write() as connection:
            write_label(connection, text(run_id), **changes)
        return 1

    def _tag(self, run_ids: list[str], add: Sequence[str], remove: Sequence[str]) -> int:
        found = list(self._statuses(run_ids))
        if found and (add or remove):
            with self.database.write() as connection:
                write_tags(connection, found, add, remove)
        return len(found)

    def _delete(self, run_ids: list[str]) -> list[str]:
        found = self._statuses(run_ids)
        live = sorted(run_id for run_id, status in found.items() if status not in TERMINAL)
        if live:
            raise BadInput(f"Run {live[0]} is still {found[live[0]]}: stop it before deleting it.")
        if found:
            with self.database.write() as connection:
                connection.execute(delete(runs).where(runs.c.run_id.in_(found)))
        return sorted(found)

    def _delete_part(self, table: Table, run_ids: list[str]) -> None:
        with self.database.write() as connection:
            delete_part(connection, table, run_ids)

    def _archive(self, run_ids: list[str], archived: bool) -> int:
        found = self._statuses(run_ids)
        if found:
            with self.database.write() as connection:
                connection.execute(update(runs).where(runs.c.run_id.in_(found)).values(archived=archived))
        return len(found)

    def _statuses(self, run_ids: list[str]) -> dict[str, str]:
        ids = [text(run_id) for run_id in run_ids]
        with self.database.read() as connection:
            rows = connection.execute(select(runs.c.run_id, runs.c.status).where(runs.c.run_id.in_(ids)))
            return {row.run_id: row.status for row in rows}
