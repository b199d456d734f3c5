"""What happens when the process that writes is killed, or a second one comes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from core.errors import StorageUnavailable
from core.records import Ended
from core.results.metrics import summarise
from storage.queries import Runs
from storage.recovery import sweep
from storage.schema import CHILDREN, candidates, rounds, runs
from storage.store import Store
from tests.helpers.processes import reported, writing
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


def test_kill_9_loses_only_rounds_younger_than_a_second_and_leaves_the_run_interrupted(path: Path) -> None:
    with writing("write", path) as process:
        said: list[tuple[float, int]] = []
        while len(said) < 100 or time.monotonic() - said[0][0] < 2.5:
            said.append((time.monotonic(), reported(process)["round"]))
        killed_at = time.monotonic()
        process.kill()
    old = max(index for moment, index in said if moment < killed_at - 1)
    with Store(path) as store:
        stored = Runs(store)
        assert set(store.interrupted) == {run_id(2), run_id(3)}
        kept = stored.rounds(run_id(2))
        assert kept == [round_(index) for index in range(len(kept))]
        assert len(kept) > old
        run = stored.get(run_id(2))
        assert run is not None
        assert run.text is not None
        assert (run.status, run.stop_reason) == ("interrupted", "interrupted")
        assert run.error == f"The app stopped while this run was decoding; its first {len(kept)} rounds are kept."
        assert run.text == "toto" * len(kept)
        assert run.summary == summarise(
            started(), kept, Ended(0, "interrupted", run.text, kept[-1].ended_at_s, error=run.error)
        )
        assert run.summary is not None
        assert run.summary.output_tokens == 2 * len(kept)
        assert run.ended_at is not None
        assert run.started_at == at(3)
        assert run.duration_s == pytest.approx(0.02 * len(kept), abs=1e-5)

        waiting = stored.get(run_id(3))
        assert waiting is not None
        assert (waiting.status, waiting.summary) == ("interrupted", None)
        assert waiting.error == "The app stopped before this run left the queue: run it again."
        over = stored.get(run_id(1))
        assert over is not None
        assert (over.status, over.summary) == ("done", summary())


def test_a_second_process_gets_a_sentence_that_names_the_first_and_the_first_is_not_disturbed(path: Path) -> None:
    with writing("hold", path) as process:
        assert reported(process) == {"holds": str(path)}
        with pytest.raises(StorageUnavailable) as refused:
            Store(path)
        assert str(refused.value) == (
            f"The database {path} is in use by process {process.pid}: one process at a time can open it. "
            "Close that one (the app, or an export) and try again, or name another file."
        )
        assert process.poll() is None
    with Store(path) as store:
        assert Runs(store).count() == 0


def test_an_idle_store_keeps_other_processes_out_after_its_readers_are_gone(store: Store, path: Path) -> None:
    Runs(store).list()
    store.database._engine.pool.dispose()
    with writing("hold", path) as process:
        assert process.wait(timeout=60) != 0


def test_a_deletion_that_was_cut_off_is_finished_when_the_file_is_opened(path: Path) -> None:
    with Store(path) as store:
        for number in (1, 2):
            store.submitted(run_id(number), spec(), "s", at(0))
            store.started(run_id(number), started(), at(0))
            store.rounds(run_id(number), [round_(0)])
            store.ended(run_id(number), ended(), summary(), at(1))
            store.tag([run_id(number)], add="x")
        with store.database.write() as connection:
            connection.execute(delete(runs).where(runs.c.run_id == run_id(1)))
    with Store(path) as store, store.database.read() as connection:
        for table in CHILDREN:
            ids = set(connection.execute(table.select()).scalars())
            assert ids == {run_id(2)}, table.name
        assert sweep(connection) == 0


def test_a_run_whose_rounds_make_no_sense_does_not_keep_the_store_from_opening(path: Path) -> None:
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.started(run_id(1), started(), at(0))
        store.rounds(run_id(1), [round_(0)])
        store.flush()
        with store.database.write() as connection:
            connection.execute(update(rounds).values(committed_tokens="not JSON"))
    with Store(path) as store, store.database.read() as connection:
        found = connection.execute(runs.select()).mappings().one()
        assert (found["status"], found["summary_json"]) == ("interrupted", None)
        assert found["error"].endswith("Its rounds cannot be read.")
        assert connection.execute(candidates.select()).first() is not None
