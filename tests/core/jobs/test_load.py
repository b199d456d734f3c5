"""Loading a pair ahead of its first run, unloading, and which pairs the queue shows as loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import core.jobs.jobs
from core.jobs.jobs import Jobs, load_spec
from core.jobs.process_executor import ProcessExecutor
from core.records import TERMINAL
from core.types import PairSpec
from tests.helpers import fakes_worker
from tests.helpers.fakes_worker import PATIENCE_S, Gate, Script
from tests.helpers.processes import killed
from tests.helpers.queueing import InlineExecutor, ListSink, finished, reached
from tests.helpers.tiny import save_tiny_model

A, B = PairSpec(name="a"), PairSpec(name="b")


class NoSink:
    """A sink that nothing may reach."""

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"a load was stored: {name}")


@pytest.fixture(autouse=True)
def empty_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted engine reads its script in the prompt."""
    monkeypatch.setattr(core.jobs.jobs, "LOAD_PROMPT", "{}")


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """A queue before the scripted engine in a process of its own, with a sink that takes nothing."""
    queue = Jobs(NoSink(), "session", fakes_worker.COMMAND)  # type: ignore[arg-type]
    yield queue
    queue.close()


def ended(jobs: Jobs, run_id: str) -> str:
    """The status in which the run or load ends."""
    view = jobs.wait(run_id, timeout_s=PATIENCE_S)
    assert view is not None and view.status in TERMINAL
    return view.status


# -- loads ----------------------------------------------------------------------------------------------------------


def test_a_load_ends_with_its_pair_in_memory_and_leaves_no_run(jobs: Jobs) -> None:
    assert jobs.loading() is None
    assert ended(jobs, jobs.load(A)) == "done"
    assert jobs.loaded() == (A,)
    assert jobs.active() == []
    loading = jobs.loading()
    assert loading is not None and loading.spec.pair == A


def test_a_load_that_waits_or_goes_on_is_no_active_run_but_can_be_watched(jobs: Jobs, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    load = jobs.load(PairSpec(name=f"gated:{gate.path}"))
    gate.reached()
    reached(jobs, load, lambda view: view.message == "loading weights …")
    view = jobs.loading()
    assert view is not None
    assert (view.status, view.message, view.progress) == ("running", "loading weights …", 0.5)
    assert jobs.active() == []
    assert jobs.loaded() == ()
    gate.close()
    assert ended(jobs, load) == "done"


def test_asking_twice_for_the_same_load_asks_once(jobs: Jobs, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    pair = PairSpec(name=f"gated:{gate.path}")
    first = jobs.load(pair)
    gate.reached()
    assert jobs.load(pair) == first
    gate.close()
    ended(jobs, first)
    assert jobs.load(pair) != first


def test_a_load_is_cancelled_like_a_run(tmp_path: Path) -> None:
    jobs = Jobs(None, "session", executor=InlineExecutor(fakes_worker.load_pair, fakes_worker.cycles))
    gate = Gate(tmp_path / "gate")
    load = jobs.load(PairSpec(name=f"gated:{gate.path}"))
    gate.reached()
    jobs.cancel(load)  # inline the engine has it when this returns, in the middle of the load
    gate.close()
    assert ended(jobs, load) == "cancelled"
    assert jobs.loaded() == ()
    jobs.close()


def test_a_pair_that_is_not_here_ends_its_load_with_the_loaders_sentence(jobs: Jobs) -> None:
    assert ended(jobs, jobs.load(A)) == "done"
    load = jobs.load(PairSpec(name="missing"))
    assert ended(jobs, load) == "failed"
    view = jobs.view(load)
    assert view is not None and view.ended is not None
    assert view.ended.error == "The pair missing is not on this machine: choose another."
    assert jobs.loaded() == ()  # the old pair was freed to make room


def test_a_pair_is_unloaded_on_demand(jobs: Jobs) -> None:
    ended(jobs, jobs.load(A))
    jobs.unload()
    assert jobs.loaded() == ()
    ended(jobs, jobs.load(A))
    assert jobs.loaded() == (A,)


def test_the_next_run_of_a_loaded_pair_loads_nothing(tmp_path: Path) -> None:
    jobs = Jobs(None, "session", fakes_worker.COMMAND)
    try:
        ended(jobs, jobs.load(A))
        run = jobs.submit(Script(rounds=1).spec("a"))
        ended(jobs, run)
        view = jobs.view(run)
        assert view is not None and view.ended is not None
        assert view.ended.text.startswith("L1 ")  # the engine's process has loaded once
    finally:
        jobs.close()


def test_a_killed_engine_has_no_pair_loaded(jobs: Jobs) -> None:
    ended(jobs, jobs.load(A))
    executor = jobs._executor
    assert isinstance(executor, ProcessExecutor) and executor.pid is not None
    killed(executor.pid)
    assert jobs.loaded() == ()


def test_a_real_pair_is_loaded_by_decoding_one_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.jobs.jobs, "LOAD_PROMPT", "Hello")
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))
    pair = PairSpec(name=str(save_tiny_model(tmp_path / "tiny", seed=1)), device="cpu")
    jobs = Jobs(None, "session", executor=InlineExecutor())
    try:
        load = jobs.load(pair)
        assert ended(jobs, load) == "done"
        view = jobs.view(load)
        assert view is not None and view.summary is not None
        assert view.summary.output_tokens == 1
        assert jobs.loaded() == (pair,)
    finally:
        jobs.close()


def test_the_run_that_loads_a_pair_asks_for_one_plain_token() -> None:
    request = load_spec(A).request
    assert (request.stops.max_new_tokens, request.chat, request.drafter.kind) == (1, False, "none")


# -- which pairs are loaded -----------------------------------------------------------------------------------------


@pytest.fixture
def runs() -> Iterator[Jobs]:
    """A queue that may decode runs."""
    queue = Jobs(ListSink(), "session", fakes_worker.COMMAND)
    yield queue
    queue.close()


def test_a_pair_that_no_run_uses_gives_way_to_another_before_that_is_loaded(runs: Jobs, tmp_path: Path) -> None:
    ended(runs, runs.load(A))
    ended(runs, runs.submit(Script(rounds=1).spec("a")))
    assert runs.loaded() == (A,)
    gate = Gate(tmp_path / "gate")
    other = PairSpec(name=f"gated:{gate.path}")
    load = runs.load(other)
    gate.reached()
    assert runs.loaded() == ()
    gate.close()
    ended(runs, load)
    assert runs.loaded() == (other,)


def test_two_pairs_in_use_are_both_loaded(runs: Jobs) -> None:
    paused = [runs.submit(Script().spec(name), paused=True) for name in ("a", "b")]
    for run_id in paused:
        reached(runs, run_id, lambda view: view.started is not None)
    assert runs.loaded() == (A, B)


def test_a_pair_in_use_is_unloaded_only_at_its_last_runs_end_and_a_pair_not_in_use_at_once(runs: Jobs) -> None:
    first, second = runs.submit_together([Script().spec("a"), Script().spec("a")], paused=True)
    other = runs.submit(Script(rounds=1).spec("b"))
    for run_id in (first, second):
        reached(runs, run_id, lambda view: view.started is not None)
    assert finished(runs, other).status == "done"
    assert runs.loaded() == (A, B)
    runs.unload()
    assert runs.loaded() == (A,)
    for run_id, left in ((first, (A,)), (second, ())):
        runs.cancel(run_id)
        assert finished(runs, run_id).status == "cancelled"
        assert runs.loaded() == left


def test_a_pair_that_is_unloaded_while_it_is_being_loaded_goes_at_its_runs_end(
    runs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.jobs.jobs, "UNLOAD_WAIT_S", 0.01)
    gate = Gate(tmp_path / "gate")
    pair = PairSpec(name=f"gated:{gate.path}")
    run_id = runs.submit(Script(rounds=1).spec(pair.name))
    gate.reached()
    runs.unload()
    gate.close()
    assert finished(runs, run_id).status == "done"
    assert runs.loaded() == ()


def test_unloading_an_engine_that_is_busy_with_another_load_does_not_wait_for_long(
    runs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.jobs.jobs, "UNLOAD_WAIT_S", 0.01)
    held = runs.submit(Script().spec("a"), paused=True)
    reached(runs, held, lambda view: view.started is not None)
    gate = Gate(tmp_path / "gate")
    load = runs.load(PairSpec(name=f"gated:{gate.path}"))
    gate.reached()
    runs.cancel(held)
    runs.unload()
    assert runs.loaded() == (A,)
    gate.close()
    ended(runs, load)
    finished(runs, held)
