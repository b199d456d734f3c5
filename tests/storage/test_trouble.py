"""A disk that is full, a database that breaks and data that is refused: nothing is lost silently, nothing crashes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from core.errors import StorageUnavailable
from storage.queries import Runs
from storage.store import Store
from storage.writer import Record, write_batch
from tests.helpers.processes import reported, writing
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


class Disk:
    """A disk that fails as long as ``fault`` is set; ``late``: after the write reached the transaction."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.tries = 0

    def write(self, connection: Connection, records: Sequence[Record], again: bool) -> None:
        self.tries += 1
        write_batch(connection, records, again)
        if self.fault is not None:
            raise self.fault


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def wait_for(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit, "it did not happen within 20 s"
        time.sleep(0.01)


def test_a_full_disk_is_reported_and_everything_is_stored_once_there_is_room(path: Path) -> None:
    disk = Disk()
    with Store(path, write=disk.write, gather_s=0.01, retry_s=0.02) as store:
        stored = Runs(store)
        store.submitted(run_id(1), spec(), "s", at(0))
        store.flush()
        assert store.trouble is None
        disk.fault = full()
        store.started(run_id(1), started(), at(1))
        store.rounds(run_id(1), [round_(0), round_(1)])
        wait_for(lambda: store.trouble)
        assert store.trouble == (
            f"The disk that holds {path} is full: free some room. "
            "2 rounds wait in memory until it can be written again."
        )
        store.rounds(run_id(1), [round_(2)])
        store.ended(run_id(1), ended(), summary(), at(2))
        with pytest.raises(StorageUnavailable, match=r"is full: free some room\. 3 rounds wait"):
            store.flush(timeout_s=0.2)
        run = stored.get(run_id(1))
        assert run is not None
        assert run.status == "queued"
        tries = disk.tries
        wait_for(lambda: disk.tries > tries + 2)

        disk.fault = None
        store.flush()
        assert store.trouble is None
        run = stored.get(run_id(1))
        assert run is not None
        assert (run.status, run.summary, run.rounds_missing) == ("done", summary(), 0)
        assert stored.rounds(run_id(1)) == [round_(0), round_(1), round_(2)]


def test_a_write_that_failed_after_it_was_committed_is_not_stored_twice(path: Path) -> None:
    """The disk fails when the log was already written: the next try meets its own rows."""
    failed: list[bool] = []

    def write(connection: Connection, records: Sequence[Record], again: bool) -> None:
        write_batch(connection, records, again)
        if not failed:
            connection.commit()
            failed.append(True)
            raise full()

    with Store(path, write=write, gather_s=0.05, retry_s=0.01) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(1))
        store.rounds(run_id(1), [round_(0), round_(1)])
        store.flush()
        assert failed == [True]
        assert Runs(store).rounds(run_id(1)) == [round_(0), round_(1)]
        with store.database.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM candidates").scalar() == 4
            assert connection.exec_driver_sql("SELECT count(*) FROM fingerprints").scalar() == 1


def test_rounds_beyond_the_memory_set_aside_are_dropped_from_the_end_and_counted(path: Path) -> None:
    disk = Disk()
    with Store(path, write=disk.write, gather_s=0.01, retry_s=0.02, most_waiting=5) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.flush()
        disk.fault = full()
        for index in range(0, 8, 2):
            store.rounds(run_id(1), [round_(index), round_(index + 1)])
        store.rounds(run_id(1), [round_(8)])
        wait_for(lambda: store.trouble)
        assert str(store.trouble).endswith("There was no room in memory for 5 more.")
        store.ended(run_id(1), ended(), summary(), at(2))
        disk.fault = None
        store.flush()
        run = Runs(store).get(run_id(1))
        assert run is not None
        assert (run.status, run.rounds_missing) == ("done", 5)
        assert Runs(store).rounds(run_id(1)) == [round_(index) for index in range(4)]


def test_a_database_that_duckdb_has_invalidated_is_opened_again(path: Path) -> None:
    disk = Disk()
    with Store(path, write=disk.write, gather_s=0.01, retry_s=0.05) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.flush()
        before = store.database._engine
        disk.fault = OperationalError("", None, duckdb.FatalException("database has been invalidated"))
        store.started(run_id(1), started(), at(1))
        wait_for(lambda: store.trouble)
        disk.fault = None
        store.flush()
        assert store.trouble is None
        assert store.database._engine is not before
        run = Runs(store).get(run_id(1))
        assert run is not None
        assert run.status == "running"


def test_data_that_is_refused_is_dropped_alone_and_named(path: Path) -> None:
    with Store(path, gather_s=0.2) as store:
        bad: Any = replace(round_(1), committed=("no number",))
        for number in (1, 2):
            store.submitted(run_id(number), spec(), "s", at(0))
            store.started(run_id(number), started(), at(1))
            store.rounds(run_id(number), [round_(0)])
        store.rounds(run_id(2), [bad])
        store.ended(run_id(1), ended(), summary(), at(2))
        store.ended(run_id(2), ended(), summary(), at(2))
        store.flush()
        stored = Runs(store)
        assert str(store.trouble).startswith(f"The rounds of run {run_id(2)} could not be stored (invalid literal")
        assert [run.status for run in stored.list()] == ["done", "done"]
        assert stored.rounds(run_id(1)) == [round_(0)]
        assert stored.rounds(run_id(2)) == [round_(0)]


def test_the_same_run_id_twice_is_refused_and_the_first_run_stays(path: Path) -> None:
    with Store(path) as store:
        store.submitted(run_id(1), spec("first"), "s", at(0))
        store.flush()
        store.submitted(run_id(1), spec("second"), "s", at(0))
        store.flush()
        assert str(store.trouble).startswith(f"The settings of run {run_id(1)} could not be stored (Constraint Error")
        run = Runs(store).get(run_id(1))
        assert run is not None
        assert run.spec.request.prompt == "first"


def test_closing_while_the_disk_is_full_reports_the_lost_rounds(path: Path) -> None:
    disk = Disk()
    store = Store(path, write=disk.write, gather_s=0.01, retry_s=0.02)
    store.submitted(run_id(1), spec(), "s", at(0))
    store.flush()
    disk.fault = full()
    store.rounds(run_id(1), [round_(0), round_(1), round_(2)])
    wait_for(lambda: store.trouble)
    with pytest.raises(StorageUnavailable, match="It closed before 3 rounds could be stored; they are lost"):
        store.close(timeout_s=0.2)
    with Store(path) as again:
        assert again.interrupted == (run_id(1),)


def test_deleting_on_a_broken_disk_is_a_sentence_and_changes_nothing(path: Path) -> None:
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.ended(run_id(1), ended(), None, at(1))
        store.flush()

        def broken() -> int:
            raise full()

        with pytest.raises(StorageUnavailable, match="is full: free some room"):
            store._writer.call(broken)
        assert store.delete([run_id(1)]) == 1


def test_a_process_that_meets_a_real_write_limit_keeps_everything_and_goes_on_when_it_is_lifted(path: Path) -> None:
    """RLIMIT_FSIZE stands in for the full disk: DuckDB's own writes fail in the operating system."""
    with writing("starve", path) as process:
        starved = reported(process)
        assert starved["trouble"].startswith(f"The disk that holds {path} is full: free some room.")
        assert 0 < starved["readable"] < starved["handed_in"]
        recovered = reported(process)
        assert recovered == {"trouble": None, "stored": starved["handed_in"] + 1, "whole": True}
        assert process.wait(timeout=60) == 0
    with Store(path) as store:
        run = Runs(store).get(run_id(1))
        assert run is not None
        assert (run.status, run.rounds_missing) == ("done", 0)
        assert len(Runs(store).rounds(run_id(1))) == starved["handed_in"] + 1
