"""Exports from the History page: the whole matched set, made in the background, and what is said when it fails."""

from __future__ import annotations

import csv
import errno
import os
import time
import zipfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.ui.history import exporting
from pages.ui.kit.services import Services
from storage.export import background as made
from storage.export.background import ExportView
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

ROUNDS = [sample.chain(["accepted", "rejected"], i) for i in range(2)]


@pytest.fixture
def app(store: Store) -> Services:
    """Thirty runs: more than a page of the table."""
    for number in range(30):
        spec = sample.spec(prompt=f"Prompt number {number}")
        fake_app.keep(store, f"{number:026d}", ROUNDS, spec, after_s=60.0 * number)
    return fake_app.stored_services(store)


def view(at: AppTest, app: Services) -> ExportView:
    """The export asked for last."""
    assert app.exports is not None
    found = app.exports.view(at.session_state[exporting.ASKED][0])
    assert found is not None
    return found


def over(at: AppTest, app: Services) -> ExportView:
    """Wait until it is over, and draw the page."""
    limit = time.monotonic() + 60
    while view(at, app).status == "running":
        assert time.monotonic() < limit, "it did not end within 60 s"
        time.sleep(0.01)
    at.run()
    assert not at.exception
    return view(at, app)


def test_the_export_is_the_whole_matched_set_and_not_the_page_in_view(open_page: Open, app: Services) -> None:
    at = open_page("history", app, q="number 1")
    at.radio(key="export_what").set_value("rounds").run()
    assert any("All 11 matching runs, not only those in view." in caption.value for caption in at.caption)
    at.button(key="export_make").click().run()
    found = over(at, app)
    assert found.status == "ready"
    with found.path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["run_id"] for row in rows} == {f"{n:026d}" for n in (1, *range(10, 20))}
    [button] = at.get("download_button")
    assert button.proto.label == f"Download ({exporting.numbers.size(found.size)})"  # type: ignore[attr-defined]


def test_another_filter_asks_for_another_file(open_page: Open, app: Services) -> None:
    at = open_page("history", app)
    at.button(key="export_make").click().run()
    found = over(at, app)
    assert len(at.get("download_button")) == 1
    at.text_input(key="history_text").set_value("number 1").run()
    assert at.get("download_button") == []
    at.radio(key="export_format").set_value("parquet")
    at.button(key="export_make").click().run()
    other = over(at, app)
    assert other.path != found.path
    with zipfile.ZipFile(other.path) as bundle:
        assert "runs.parquet" in bundle.namelist()
        assert "data_dictionary.csv" in bundle.namelist()


def test_a_full_disk_is_a_sentence_and_the_next_try_works(
    open_page: Open, app: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    at = open_page("history", app)
    with monkeypatch.context() as patch:
        patch.setattr(made, "write_bundle", full)
        at.button(key="export_make").click().run()
        assert over(at, app).status == "failed"
    assert "the disk is full, so free some room; nothing was exported." in html(at)
    assert at.get("download_button") == []
    at.button(key="export_make").click().run()
    assert over(at, app).status == "ready"


def test_a_folder_that_cannot_be_made_is_a_sentence(open_page: Open, app: Services, store: Store) -> None:
    (store.path.parent / "exports").write_text("in the way")
    at = open_page("history", app)
    at.button(key="export_make").click().run()
    assert not at.exception
    assert "cannot be made for exports" in html(at)


def test_a_file_too_large_for_a_download_is_kept_and_named(
    open_page: Open, app: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "MAX_DOWNLOAD", 10)
    at = open_page("history", app)
    at.button(key="export_make").click().run()
    found = over(at, app)
    assert f"the file is kept at {found.path}." in html(at)
    assert at.get("download_button") == []


def test_a_file_that_was_removed_meanwhile_is_said(open_page: Open, app: Services) -> None:
    at = open_page("history", app)
    at.button(key="export_make").click().run()
    over(at, app).path.unlink()
    at.run()
    assert "is not there any more: make the file again." in html(at)


def test_progress_tells_rows_time_and_what_is_left() -> None:
    going = ExportView("x", Path("x"), "running", 250, 1000, 3.0)
    assert (going.share, going.left_s) == (0.25, 9.0)
    assert exporting._progress(going) == "250 of 1,000 rows · 3 s · about 9 s left"
    assert exporting._progress(ExportView("x", Path("x"), "running", 0, 0, 0.5)) == "starting · 500 ms"
