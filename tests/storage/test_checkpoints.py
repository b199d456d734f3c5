"""Checkpoints happen when nobody reads: DuckDB 1.5.6 gives readers beside one wrong texts now and then."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from core.errors import StorageUnavailable
from storage import database, writer
from storage.queries import Runs
from storage.store import Store
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


def _count(store: Store) -> int:
    with store.database.read() as connection:
        return connection.execute(text("SELECT count(*) FROM runs")).scalar_one()


def test_duckdb_itself_never_checkpoints_beside_readers(store: Store) -> None:
    with store.database.read() as connection:
        said = connection.exec_driver_sql("SELECT current_setting('checkpoint_threshold')").scalar()
    assert said == "931.3 GiB"


def test_a_reader_that_comes_during_a_checkpoint_waits_for_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(connection: Any) -> None:
        begun.set()
        assert release.wait(20)
        order.append("checkpoint")

    monkeypatch.setattr(database, "checkpoint", slow)
    checkpointing = threading.Thread(target=store.database.checkpoint)
    checkpointing.start()
    assert begun.wait(20)
    reading = threading.Thread(target=lambda: order.append(f"read {_count(store)}"))
    reading.start()
    time.sleep(0.2)
    assert order == []
    release.set()
    for thread in (checkpointing, reading):
        thread.join()
    assert order == ["checkpoint", "read 0"]


def test_a_checkpoint_is_put_off_when_a_reader_stays_and_reading_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    monkeypatch.setattr(database, "checkpoint", lambda connection: made.append(True))
    monkeypatch.setattr(database, "READERS_S", 0.05)
    with store.database.read() as connection:
        store.database.checkpoint()
        assert made == []
        assert connection.execute(text("SELECT count(*) FROM runs")).scalar() == 0
    store.database.checkpoint()
    assert made == [True]
    assert _count(store) == 0


def test_a_checkpoint_that_takes_too_long_for_a_reader_is_a_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.05)
    with store.database._alone() as alone:
        assert alone
        with pytest.raises(StorageUnavailable, match=r"is busy: try again\."):
            _count(store)
    assert _count(store) == 0


def test_a_log_that_grows_large_within_a_run_is_moved_into_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOG_BYTES", 1000)
    with Store(path, gather_s=0.0) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(1))
        store.rounds(run_id(1), [round_(index) for index in range(50)])
        store.flush()
        limit = time.monotonic() + 20
        while store.database.log_bytes > 1000:  # the checkpoint follows the commit that flush waits for
            assert time.monotonic() < limit, "the log stayed"
            time.sleep(0.01)
        assert len(Runs(store).rounds(run_id(1))) == 50


def test_the_log_is_moved_into_the_file_at_the_end_of_a_run(path: Path) -> None:
    with Store(path, gather_s=0.0) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.rounds(run_id(1), [round_(0)])
        store.flush()
        assert store.database.log_bytes > 0
        store.ended(run_id(1), ended(), summary(), at(2))
        limit = time.monotonic() + 20
        while store.database.log_bytes:
            assert time.monotonic() < limit, "the log stayed"
            time.sleep(0.01)
