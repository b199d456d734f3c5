"""Many rows: exports in bounded memory, and reading and exporting while runs are written."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage.export.bundle import export_file
from storage.export.dictionary import FORMATS, Format
from storage.filters import RunFilter
from storage.queries import Runs
from storage.store import Store
from tests.helpers.memory import Memory
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary

MILLION = 1_000_000
MB = 10**6


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database with one run of 50,000 rounds and a million candidates."""
    path = tmp_path_factory.mktemp("million") / "speclens.duckdb"
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.ended(run_id(1), ended(), summary(), at(1))
        store.flush()
        with store.database.write() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO rounds SELECT '{run_id(1)}', i, 0, 'bonus', 20, 20, 0, 0, 0, 20, 21, '[1]', '[\"a\"]', "
                "0, 0, 0, 0, 0, 0, NULL FROM range(50000) AS t(i)"
            )
            connection.exec_driver_sql(
                f"INSERT INTO candidates SELECT '{run_id(1)}', i // 20, i % 20, i, 'token ' || i, i % 20 - 1, "
                "i % 20 + 1, 'accepted', random(), random(), random(), random(), random(), false, false "
                f"FROM range({MILLION}) AS t(i)"
            )
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_a_million_candidates_are_exported_in_the_memory_of_some(million: Path, format: Format) -> None:
    """Memory without DuckDB's own cache of the file. As a whole, the rows take 150 MB as CSV and a gigabyte as Python
    values. Writing Parquet takes 40 to 130 MB, depending on how its threads overlap."""
    with Store(million) as store:
        with Memory(store) as memory:
            file = export_file(store, RunFilter(), "candidates", format)
        with file:
            assert file.seek(0, 2) > 30 * MB
            file.seek(0)
            if format == "csv":
                assert sum(piece.count(b"\n") for piece in iter(lambda: file.read(MB), b"")) == 1 + MILLION
            else:
                assert pq.ParquetFile(file).metadata.num_rows == MILLION
    assert memory.grew - memory.cache < (90 if format == "csv" else 250) * MB


def test_runs_are_read_and_exported_while_others_are_written_labelled_and_deleted(path: Path) -> None:
    over = threading.Event()
    faults: list[object] = []
    seen = {"list": 0, "export": 0}

    def check(stored: Runs) -> None:
        for run in stored.list(limit=None):
            assert run.status in {"queued", "running", "done"}
            if run.status == "done":
                number = int(run.run_id)
                # its tags are written after its end, all in one transaction
                assert run.tags in ((), (f"t{number}", "x"))
                assert (run.summary, run.name) == (summary(), f"run {number}")

    def read(store: Store) -> None:
        try:
            while not over.is_set():
                check(Runs(store))
                seen["list"] += 1
        except Exception as error:
            faults.append(error)

    def export(store: Store) -> None:
        try:
            while not over.is_set():
                for format in FORMATS:
                    with export_file(store, RunFilter(), format=format) as file:
                        assert file.seek(0, 2) > 0
                seen["export"] += 1
        except Exception as error:
            faults.append(error)

    with Store(path, gather_s=0.01) as store:
        threads = [threading.Thread(target=work, args=(store,)) for work in (read, read, export)]
        for thread in threads:
            thread.start()
        for number in range(12):
            store.submitted(run_id(number), spec(), "s", at(number))
            store.started(run_id(number), started(), at(number))
            store.rounds(run_id(number), [round_(index) for index in range(20)])
            store.rename(run_id(number), f"run {number}")
            store.ended(run_id(number), ended(), summary(), at(number + 1))
            store.tag([run_id(number)], add=["x", f"t{number}"])
            if number % 3 == 2:
                assert store.delete([run_id(number)]) == 1
        over.set()
        for thread in threads:
            thread.join()
        assert faults == []
        assert min(seen.values()) >= 1
        kept = Runs(store).list(descending=False)
        assert [(run.name, run.tags) for run in kept] == [
            (f"run {number}", (f"t{number}", "x")) for number in range(12) if number % 3 != 2
        ]
        assert [len(Runs(store).rounds(run.run_id)) for run in kept] == [20] * 8


def test_labels_are_written_at_once_however_long_records_are_gathered(path: Path) -> None:
    """The caller waits for a label, so the writer does not gather longer."""
    with Store(path, gather_s=30.0) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.rename(run_id(1), "at once")
        run = Runs(store).get(run_id(1))
        assert run is not None
        assert run.name == "at once"
