"""A run's life in the store, and that readers and the writer do not disturb each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BadInput, StorageUnavailable
from core.records import RunStatus, StopReason
from storage.filters import RunFilter
from storage.queries import Runs
from storage.schema import metadata
from storage.store import Store
from storage.writer import GATHER_S, write_batch
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary

PROMISED_S = 0.5
"""Within this time of being handed in everything is to be on disk, on a machine that isn't busy."""

PATIENCE_S = 20.0
"""How long a test waits for what must happen by itself, on a machine that may be busy."""


def _comes(condition: Callable[[], bool]) -> bool:
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.01)
    return False


def _rows(store: Store) -> dict[str, int]:
    with store.database.read() as connection:
        return {
            name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in metadata.tables
        }


def test_records_are_gathered_for_less_than_the_promised_half_second() -> None:
    assert GATHER_S <= PROMISED_S - 0.1  # the rest is for the transaction


def test_a_submitted_run_is_readable_as_queued_without_a_flush(store: Store, stored: Runs) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    assert _comes(lambda: stored.get(run_id(1)) is not None)
    run = stored.get(run_id(1))
    assert run is not None
    assert (run.status, run.started_at, run.summary, run.fingerprint) == ("queued", None, None, None)


def test_rounds_are_readable_without_a_flush_while_the_run_goes_on(store: Store, stored: Runs) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    store.started(run_id(1), started(), at(1))
    store.rounds(run_id(1), [round_(0), round_(1)])
    assert _comes(lambda: len(stored.rounds(run_id(1))) == 2)
    run = stored.get(run_id(1))
    assert run is not None
    assert run.status == "running"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("eos", "done"),
        ("stop_string", "done"),
        ("max_new_tokens", "done"),
        ("context_end", "done"),
        ("cancelled", "cancelled"),
        ("failed", "failed"),
        ("interrupted", "interrupted"),
    ],
)
def test_the_stop_reason_decides_the_status(store: Store, stored: Runs, reason: StopReason, status: RunStatus) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    error = "Round 3, node 2 gave NaN." if reason == "failed" else None
    store.ended(run_id(1), ended(reason, error=error), None, at(2))
    store.flush()
    run = stored.get(run_id(1))
    assert run is not None
    assert (run.status, run.stop_reason, run.error, run.summary) == (status, reason, error, None)


def test_a_run_that_never_left_the_queue_has_neither_start_nor_summary(store: Store, stored: Runs) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    store.ended(run_id(1), ended("cancelled", text=""), None, at(2))
    store.flush()
    run = stored.get(run_id(1))
    assert run is not None
    assert (run.started_at, run.duration_s, run.summary, run.ended_at) == (None, None, None, at(2))
    assert stored.rounds(run_id(1)) == []


def test_last_rounds_summary_and_status_of_a_run_are_one_transaction(path: Path) -> None:
    batches: list[list[str]] = []

    def write(connection, records, again) -> None:  # type: ignore[no-untyped-def]
        batches.append([type(record).__name__ for record in records])
        write_batch(connection, records, again)

    with Store(path, write=write, gather_s=0.3) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(1))
        store.flush()
        store.rounds(run_id(1), [round_(0)])
        store.rounds(run_id(1), [round_(1)])
        store.ended(run_id(1), ended(), summary(), at(2))
        store.flush()
    assert batches == [["RunSubmitted", "RunStarted"], ["RunRounds", "RunRounds", "RunEnded"]]


def test_handing_in_a_thousand_rounds_does_not_wait_for_the_disk(store: Store) -> None:
    slow = threading.Event()
    entered = threading.Event()

    def hold() -> int:
        entered.set()
        slow.wait(10)
        return 0

    made = [round_(index) for index in range(1000)]
    blocked = threading.Thread(target=lambda: store._writer.call(hold))
    blocked.start()
    assert entered.wait(10)
    begun = time.perf_counter()
    store.submitted(run_id(1), spec(), "s", at(0))
    for one in made:
        store.rounds(run_id(1), [one])
    took_s = time.perf_counter() - begun
    slow.set()
    blocked.join()
    store.flush()
    assert took_s < 0.5
    assert _rows(store)["rounds"] == 1000


def test_readers_see_whole_batches_only_and_never_an_error_while_the_writer_writes(store: Store) -> None:
    """Every batch holds five rounds of one run, so a reader sees multiples of five, in every table."""
    over = threading.Event()
    faults: list[object] = []
    seen: list[int] = []

    def read() -> None:
        stored = Runs(store)
        try:
            while not over.is_set():
                found = stored.rounds(run_id(1))
                seen.append(len(found))
                if len(found) % 5 or [one.index for one in found] != list(range(len(found))):
                    faults.append(len(found))
                if any(one != round_(one.index) for one in found):
                    faults.append("a round differs")
                stored.list()
        except Exception as error:
            faults.append(error)

    store.submitted(run_id(1), spec(), "s", at(0))
    store.started(run_id(1), started(), at(0))
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for batch in range(10):
        store.rounds(run_id(1), [round_(5 * batch + index) for index in range(5)])
        store.flush()
    over.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert max(seen) >= 5
    assert len(Runs(store).rounds(run_id(1))) == 50


def test_deleting_a_run_removes_all_its_rows_and_no_others(store: Store, stored: Runs) -> None:
    for number in (1, 2):
        store.submitted(run_id(number), spec(), "s", at(0))
        store.started(run_id(number), started(), at(1))
        store.rounds(run_id(number), [round_(0), round_(1)])
        store.ended(run_id(number), ended(), summary(), at(2))
    store.tag([run_id(1), run_id(2)], add="x")
    both = _rows(store)
    assert store.delete([run_id(1), "no such run"]) == 1
    assert stored.get(run_id(1)) is None
    assert stored.rounds(run_id(2)) == [round_(0), round_(1)]
    assert _rows(store) == {name: count // 2 for name, count in both.items()}
    assert all(both.values())


def test_a_running_run_cannot_be_deleted_and_then_nothing_is(store: Store, stored: Runs) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    store.submitted(run_id(2), spec(), "s", at(0))
    store.ended(run_id(1), ended(), None, at(1))
    with pytest.raises(BadInput, match=f"Run {run_id(2)} is still queued: stop it before deleting it."):
        store.delete([run_id(1), run_id(2)])
    assert stored.count() == 2


def test_an_archived_run_leaves_the_usual_list_and_comes_back(store: Store, stored: Runs) -> None:
    store.submitted(run_id(1), spec(), "s", at(0))
    assert store.archive([run_id(1)]) == 1
    assert stored.count() == 0
    assert stored.count(RunFilter(archived=True)) == 1
    assert store.archive([run_id(1)], archived=False) == 1
    assert stored.count() == 1


def test_a_second_store_on_the_file_in_this_process_is_refused(store: Store, path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="already open in this process"):
        Store(path.parent / "." / path.name)


def test_a_closed_store_refuses_records_and_opens_again_with_everything(path: Path) -> None:
    first = Store(path)
    first.submitted(run_id(1), spec(), "s", at(0))
    first.ended(run_id(1), ended(), None, at(1))
    first.close()
    first.close()
    with pytest.raises(StorageUnavailable, match="is closed: nothing more can be stored"):
        first.submitted(run_id(2), spec(), "s", at(0))
    with Store(f"duckdb:///{path}") as second:
        assert second.interrupted == ()
        assert [run.run_id for run in Runs(second).list()] == [run_id(1)]


@pytest.mark.parametrize("name", [":memory:", "postgresql+psycopg://host/db", "duckdb://"])
def test_what_is_not_a_duckdb_file_is_refused(name: str) -> None:
    with pytest.raises(StorageUnavailable, match="file"):
        Store(name)


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StorageUnavailable, match=r"is not a DuckDB database\. Nothing was changed"):
        Store(path)
    assert path.read_bytes() == b"not a database" * 1000


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(StorageUnavailable, match="cannot be made"):
        Store(tmp_path / "file" / "speclens.duckdb")
