"""The composition root: one set of services a process, opened, replaced and closed; and a database that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from core.records import TERMINAL
from pages.ui.kit import services
from storage.connect import default_path
from storage.filters import RunFilter
from storage.inspection import LOG_VERSION_END, log_of
from storage.queries import Runs
from storage.schema import runs
from storage.store import Store
from tests.helpers import sample
from tests.helpers.records import at as at_second
from tests.helpers.records import run_id
from tests.helpers.running_app import FAKE

REPO = Path(__file__).resolve().parents[2]
HOLD = "import sys, duckdb; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The scripted engine in the worker, and a data folder of its own."""
    for name, value in FAKE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPECLENS_DATA", str(tmp_path / "data"))
    yield tmp_path / "data"
    services.reopen()  # closes what the test opened


def bodies(at: AppTest) -> list[str]:
    """The page's pieces of HTML."""
    return [one.proto.body for one in at.get("html")]


def left_behind(path: Path, cut: int = 0) -> None:
    """What a killed app left: a file, and a log with one run, whose last entry may be ``cut`` to some bytes."""
    path.parent.mkdir(parents=True)
    with Store(path) as store:
        store.submitted(run_id(1), sample.spec(20), "s", at_second(0))
        store.flush()
        store.submitted(run_id(2), sample.spec(20), "s", at_second(0))
        store.flush()
        file, log = path.read_bytes(), log_of(path).read_bytes()
    path.write_bytes(file)
    last = log.rindex(LOG_VERSION_END, 0, -len(LOG_VERSION_END)) + len(LOG_VERSION_END)
    log_of(path).write_bytes(log[: last + cut] if cut else log)


def finished(app: services.Services, run_id: str) -> None:
    """Wait for a run's end (the fake engine needs milliseconds)."""
    view = app.jobs.wait(run_id, timeout_s=60)
    assert view is not None
    assert view.status == "done"


def test_the_services_are_one_set_and_keep_what_is_decoded(fake_worker: Path) -> None:
    app = services.services()
    assert services.services() is app
    assert app.trouble() == ""
    run_id = app.jobs.submit(sample.spec(20))
    finished(app, run_id)
    services.reopen()
    again = services.services()
    assert again is not app
    assert again.session != app.session
    assert again.runs is not None
    stored = again.runs.get(run_id)
    assert stored is not None
    assert stored.status == "done"
    assert len(again.runs.rounds(run_id)) > 0
    assert again.exports is not None
    export_id = again.exports.start(RunFilter(), "runs")
    view = again.exports.view(export_id)
    while view is not None and view.status == "running":
        time.sleep(0.01)
        view = again.exports.view(export_id)
    assert view is not None
    assert run_id.encode() in view.path.read_bytes()


def test_the_app_keeps_runs_in_the_default_database_and_its_exports_beside_it(fake_worker: Path) -> None:
    app = services.services()
    finished(app, app.jobs.submit(sample.spec(20)))
    assert app.keeper is not None and app.exports is not None
    assert app.keeper.path == default_path()
    assert default_path().parent == fake_worker
    export = app.exports.view(app.exports.start(RunFilter(), "runs"))
    assert export is not None and export.path.parent == fake_worker / "exports"


def test_opening_again_ends_the_run_in_flight_and_leaves_no_worker_behind(fake_worker: Path) -> None:
    app = services.services()
    run_id = app.jobs.submit(sample.spec(5000, "slow"))
    app.jobs.wait(run_id, lambda view: view.rounds > 0, timeout_s=60)
    services.reopen()
    runs = services.services().runs
    assert runs is not None
    stored = runs.get(run_id)
    assert stored is not None
    assert stored.status == "interrupted"
    view = app.jobs.view(run_id)
    assert view is not None
    assert view.status in TERMINAL


def test_a_database_held_by_another_process_is_said_and_runs_go_on_unkept(fake_worker: Path) -> None:
    fake_worker.mkdir()
    database = default_path()
    Store(database).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        app = services.services()
        assert app.runs is None
        assert f"in use by process {holder.pid}" in app.trouble()
        finished(app, app.jobs.submit(sample.spec(20)))
        assert (app.keeper, app.exports) == (None, None)
    finally:
        holder.communicate()
    services.reopen()
    assert services.services().trouble() == ""
    assert isinstance(services.services().runs, Runs)


@pytest.mark.timeout(120)
def test_a_pipe_in_the_databases_place_is_said_on_the_pages_and_runs_go_on_unkept(fake_worker: Path) -> None:
    fake_worker.mkdir()
    os.mkfifo(default_path())
    app = services.services()
    assert app.runs is None
    finished(app, app.jobs.submit(sample.spec(20)))
    for name in ("live", "history", "models"):
        at = AppTest.from_file(REPO / "pages" / f"{name}.py", default_timeout=60).run()
        assert not at.exception
        (note,) = [one for one in bodies(at) if "Runs are not being kept." in one]
        assert "is a pipe, not a file. Nothing was changed." in note
    services.reopen()
    default_path().unlink()
    assert services.services().trouble() == ""


def test_history_names_the_copy_of_a_log_that_could_not_be_read_to_its_end(fake_worker: Path) -> None:
    left_behind(default_path(), cut=5)
    at = AppTest.from_file(REPO / "pages" / "history.py", default_timeout=60).run()
    assert not at.exception
    (note,) = [one for one in bodies(at) if "The last 5 bytes of the log" in one]
    assert f"is kept as {default_path()}.wal.as-found" in note


def test_history_says_which_run_is_damaged_instead_of_failing(fake_worker: Path) -> None:
    left_behind(default_path())
    app = services.services()
    assert app.keeper is not None
    with app.keeper.database.write() as connection:
        connection.execute(update(runs).where(runs.c.run_id == run_id(1)).values(spec_json="{"))
    at = AppTest.from_file(REPO / "pages" / "history.py", default_timeout=60).run()
    assert not at.exception
    assert any(f"Run {run_id(1)} cannot be read from the database" in one for one in bodies(at))


def test_a_data_folder_that_cannot_be_made_is_said_in_a_sentence(
    fake_worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = fake_worker.parent / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("SPECLENS_DATA", str(blocked / "data"))
    assert f"The data folder {blocked / 'data'} can't be used" in services.services().trouble()


def test_the_app_opens_at_live_with_both_pages_in_its_navigation(fake_worker: Path) -> None:
    at = AppTest.from_file(REPO / "app.py", default_timeout=60).run()
    assert not at.exception
    assert at.button(key="run").label == "Run"
