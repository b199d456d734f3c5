"""Exports written in the background: what they hold, their progress, their ends, and what is left of them."""

from __future__ import annotations

import csv
import errno
import io
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.errors import BadInput, StorageUnavailable
from storage.export import background as module
from storage.export.background import Exports, ExportView
from storage.filters import RunFilter
from storage.store import Store
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


@pytest.fixture
def filled(store: Store) -> Store:
    """Three runs of four rounds."""
    for number in range(3):
        store.submitted(run_id(number), spec(), "s", at(number))
        store.started(run_id(number), started(), at(number))
        store.rounds(run_id(number), [round_(index) for index in range(4)])
        store.ended(run_id(number), ended(), summary(), at(number + 1))
    store.flush()
    return store


@pytest.fixture
def made(filled: Store, tmp_path: Path) -> Iterator[Exports]:
    opened = Exports(filled, tmp_path / "exports")
    yield opened
    opened.close()


def over(made: Exports, export_id: str) -> ExportView:
    """Wait for its end."""
    limit = time.monotonic() + 60
    while (view := made.view(export_id)) is not None and view.status == "running":
        assert time.monotonic() < limit, "it did not end within 60 s"
        time.sleep(0.005)
    assert view is not None
    return view


def test_one_table_as_csv_and_as_parquet_holds_every_row_that_matches(made: Exports) -> None:
    view = over(made, made.start(RunFilter(), "rounds", "csv"))
    assert (view.status, view.share, view.rows, view.total) == ("ready", 1.0, 12, 12)
    assert view.path.suffix == ".csv"
    assert view.size == view.path.stat().st_size
    with view.path.open(encoding="utf-8-sig", newline="") as file:
        assert len(list(csv.DictReader(file))) == 12
    parquet = over(made, made.start(RunFilter(), "runs", "parquet"))
    assert pq.read_table(parquet.path).column("run_id").to_pylist() == [run_id(number) for number in range(3)]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_the_bundle_holds_all_tables_and_their_dictionary(made: Exports, format: module.Format) -> None:
    view = over(made, made.start(RunFilter(), None, format))
    assert view.status == "ready"
    with zipfile.ZipFile(view.path) as bundle:
        tables = [f"{name}.{format}" for name in ("runs", "rounds", "candidates")]
        assert bundle.namelist() == ["README.txt", "data_dictionary.csv", *tables]
        assert bundle.testzip() is None
        if format == "csv":
            text = io.TextIOWrapper(bundle.open("runs.csv"), encoding="utf-8-sig", newline="")
            assert len(list(csv.DictReader(text))) == 3


def test_nothing_that_matches_is_a_file_without_rows(made: Exports) -> None:
    view = over(made, made.start(RunFilter(text="no such text"), "runs", "csv"))
    assert (view.status, view.total) == ("ready", 0)
    assert view.path.read_bytes().count(b"\n") == 1


def test_a_stopped_export_leaves_no_file(made: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()
    write = module.write_table

    def slow(*arguments: object) -> None:
        reached.set()
        assert go_on.wait(60)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "write_table", slow)
    export_id = made.start(RunFilter(), "rounds", "csv")
    assert reached.wait(60)
    view = made.view(export_id)
    assert view is not None
    assert (view.status, view.rows, view.total, view.left_s) == ("running", 0, 12, None)
    made.stop(export_id)
    go_on.set()
    view = over(made, export_id)
    assert view.status == "stopped"
    assert list(view.path.parent.iterdir()) == []


def test_a_full_disk_is_a_sentence_and_leaves_no_file(made: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write_table", full)
    view = over(made, made.start(RunFilter(), "rounds", "csv"))
    assert view.status == "failed"
    assert "the disk is full, so free some room; nothing was exported." in view.problem
    assert list(view.path.parent.iterdir()) == []


def test_a_database_that_cannot_be_read_is_a_sentence(made: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> int:
        raise StorageUnavailable("The database is in use by process 7: close it.")

    monkeypatch.setattr(module, "rows_of", locked)
    view = over(made, made.start(RunFilter(), "rounds", "csv"))
    assert (view.status, view.problem) == ("failed", "The database is in use by process 7: close it.")


def test_a_fault_of_our_own_is_a_sentence_too(made: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("secret detail")

    monkeypatch.setattr(module, "write_table", broken)
    view = over(made, made.start(RunFilter(), "rounds", "csv"))
    assert (view.status, view.problem) == ("failed", "The export failed (ValueError): try again.")


def test_a_third_export_at_once_is_refused(made: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(module, "write_table", lambda *_: go_on.wait(60))
    two = [made.start(RunFilter(), "runs") for _ in range(2)]
    with pytest.raises(BadInput, match="2 exports are being written"):
        made.start(RunFilter(), "runs")
    go_on.set()
    assert [over(made, export_id).status for export_id in two] == ["ready", "ready"]
    assert over(made, made.start(RunFilter(), "runs")).status == "ready"


def test_a_folder_that_cannot_be_made_is_a_sentence(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageUnavailable, match="cannot be made for exports"):
        Exports(filled, tmp_path / "file" / "exports").start(RunFilter(), "runs")


def test_old_files_go_large_ones_stay_and_a_crash_leaves_nothing_for_long(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "speclens-runs-1.csv.partial").write_text("of a dead process")
    (folder / "mine.txt").write_text("not ours")
    made = Exports(filled, folder)
    monkeypatch.setattr(module, "KEEP", 1)
    first = over(made, made.start(RunFilter(), "runs"))
    second = over(made, made.start(RunFilter(), "runs"))
    assert made.view(first.export_id) is None
    assert sorted(path.name for path in folder.iterdir()) == sorted(["mine.txt", second.path.name])
    monkeypatch.setattr(module, "MAX_DOWNLOAD", 10)
    made.close()
    assert second.large
    assert sorted(path.name for path in folder.iterdir()) == sorted(["mine.txt", second.path.name])
