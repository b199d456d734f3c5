"""Pause, resume, step: what a paused run leaves to others, what it keeps, and for how long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import core.jobs.queue
from core.jobs.jobs import PAUSE_LIMIT_S, Jobs
from core.jobs.process_executor import ProcessExecutor
from core.jobs.queue import Job, Queue
from core.records import Ended, Round, Started
from core.types import Request, RunSpec
from core.worker.protocol import Cancel, Resume, Step
from tests.helpers.decoding import ask
from tests.helpers.fakes_worker import COMMAND, PREFILL_S, ROUND_S, Gate, Script, fake_round
from tests.helpers.processes import killed
from tests.helpers.queueing import NEVER_S, ListSink, finished, reached

ENDLESS = Script(rounds=1_000_000).spec()


def started_paused(jobs: Jobs, rounds: int = 5) -> str:
    """A run that is paused before its first round."""
    run_id = jobs.submit(Script(rounds=rounds).spec(), paused=True)
    reached(jobs, run_id, lambda view: view.started is not None)
    return run_id


def test_a_paused_run_yields_the_device_to_the_queue_and_makes_no_more_rounds(jobs: Jobs) -> None:
    a = jobs.submit(ENDLESS)
    b = jobs.submit(Script().spec())
    reached(jobs, a, lambda view: view.rounds >= 2)
    assert jobs.pause(a)
    view = jobs.view(a)
    assert view is not None and (view.status, view.paused) == ("running", True)
    assert finished(jobs, b).status == "done"
    standing = jobs.view(a)
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"
    assert standing == jobs.view(a)
    assert [view.run_id for view in jobs.active()] == [a]
    assert jobs.cancel(a)
    view = finished(jobs, a)
    assert (view.status, view.paused) == ("cancelled", False)
    assert view.ended is not None and view.ended.error is None
    assert standing is not None and view.rounds == standing.rounds


def test_a_resumed_run_goes_on_where_it_was_paused(jobs: Jobs, sink: ListSink) -> None:
    a = started_paused(jobs, rounds=4)
    assert jobs.resume(a)
    view = finished(jobs, a)
    assert (view.status, view.paused, view.rounds) == ("done", False, 4)
    assert sink.of(a) == ["submitted", "started", *["rounds"] * 4, "ended"]


def test_a_run_resumed_while_another_has_the_device_takes_turns_with_it(
    jobs: Jobs, sink: ListSink, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    a = started_paused(jobs, rounds=2)
    b = jobs.submit(Script(rounds=1, gate=gate.path).spec())
    gate.reached()
    assert jobs.resume(a)
    queued = jobs.submit(Script(rounds=1).spec())
    assert [(view.run_id, view.position) for view in jobs.active()] == [(a, 0), (b, 0), (queued, 1)]
    gate.open()
    assert [finished(jobs, run_id).status for run_id in (a, b, queued)] == ["done"] * 3
    assert [run_id for call, run_id, _ in sink.calls if call == "started"] == [a, b, queued]


def test_a_step_makes_exactly_one_more_round(jobs: Jobs) -> None:
    a = started_paused(jobs)
    for count in (1, 2, 3):
        assert jobs.step(a)
        view = reached(jobs, a, lambda view, count=count: view.rounds >= count)
        # whoever came after it is over, so nothing more is under way
        finished(jobs, jobs.submit(Script(rounds=1).spec()))
        view = jobs.view(a)
        assert view is not None and (view.rounds, view.status, view.paused) == (count, "running", True)
    assert jobs.rounds(a) == [fake_round(0, "L1 "), fake_round(1), fake_round(2)]


def test_the_step_that_makes_the_last_round_ends_the_run(jobs: Jobs) -> None:
    a = started_paused(jobs, rounds=1)
    assert jobs.step(a)
    view = finished(jobs, a)
    assert (view.status, view.rounds, view.paused) == ("done", 1, False)


def test_a_step_takes_its_turn_between_the_rounds_of_the_run_that_has_the_device(
    jobs: Jobs, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    a = started_paused(jobs)
    b = jobs.submit(Script(rounds=1_000_000, gate=gate.path).spec())
    gate.reached()
    assert jobs.step(a)
    while not jobs.rounds(a):  # at a round's border, as soon as the worker has read the step
        gate.open()
        gate.reached()
    gate.open(3)
    gate.reached(3)
    assert [(view.run_id, view.paused) for view in jobs.active()] == [(a, True), (b, False)]
    assert jobs.rounds(a) == [fake_round(0, "L1 ")]
    jobs.cancel(b)
    gate.open()


def test_a_run_can_be_stepped_paused_and_resumed_while_it_waits_in_the_queue(
    jobs: Jobs, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    running = jobs.submit(Script(rounds=1, gate=gate.path).spec())
    gate.reached()
    stepped = jobs.submit(Script(rounds=9).spec(), paused=True)
    resumed = jobs.submit(Script(rounds=2).spec(), paused=True)
    paused = jobs.submit(Script(rounds=2).spec())
    assert jobs.step(stepped) and jobs.step(stepped) and jobs.resume(resumed) and jobs.pause(paused)
    assert [(view.status, view.paused) for view in jobs.active()] == [
        ("running", False),
        ("queued", True),
        ("queued", False),
        ("queued", True),
    ]
    gate.open()
    assert finished(jobs, running).status == finished(jobs, resumed).status == "done"
    reached(jobs, paused, lambda view: view.started is not None)
    reached(jobs, stepped, lambda view: view.rounds == 2)
    finished(jobs, jobs.submit(Script().spec()))
    assert [(view.run_id, view.rounds, view.paused) for view in jobs.active()] == [
        (stepped, 2, True),
        (paused, 0, True),
    ]


def test_what_is_not_there_over_or_not_paused_is_neither_paused_nor_resumed_nor_stepped(
    jobs: Jobs, gates: Callable[[], Gate]
) -> None:
    over = jobs.submit(Script().spec())
    finished(jobs, over)
    for run_id in ("nothing", over):
        assert (jobs.pause(run_id), jobs.resume(run_id), jobs.step(run_id)) == (False, False, False)
    gate = gates()
    running = jobs.submit(Script(gate=gate.path).spec())
    gate.reached()
    assert (jobs.resume(running), jobs.step(running)) == (False, False)
    assert (jobs.pause(running), jobs.pause(running)) == (True, False)
    assert jobs.cancel(running)
    assert (jobs.resume(running), jobs.step(running)) == (False, False)


def test_one_lane_of_a_race_can_be_paused_and_the_other_goes_on(jobs: Jobs) -> None:
    a, b = jobs.submit_together([Script().spec(), Script().spec()], paused=True)
    for run_id in (a, b):
        reached(jobs, run_id, lambda view: view.started is not None)
    assert jobs.resume(b)
    assert finished(jobs, b).status == "done"
    view = jobs.view(a)
    assert view is not None and (view.rounds, view.paused) == (0, True)


def test_a_run_that_is_paused_too_long_ends_as_cancelled_with_its_rounds_and_the_reason(
    sink: ListSink, executor: ProcessExecutor
) -> None:
    jobs = Jobs(sink, "session", executor=executor, pause_limit_s=1.5)
    a = jobs.submit(Script(rounds=9).spec(), paused=True)
    jobs.step(a)
    view = finished(jobs, a)
    assert (view.status, view.rounds, view.paused) == ("cancelled", 1, False)
    assert view.ended == Ended(
        0,
        "cancelled",
        "L1 b",
        PREFILL_S + ROUND_S,
        error="The run was paused for 1.5 seconds and nobody resumed it, so it was ended to give its memory back. "
        "The run's 1 whole round is kept.",
    )
    assert sink.calls[-1][2] == (view.ended, view.summary)
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"
    jobs.close()


def test_ten_minutes_count_from_the_last_command_to_or_round_of_a_paused_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(core.jobs.queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    queue = Queue(PAUSE_LIMIT_S, NEVER_S)
    job = Job("r", Script().spec(), datetime.now(UTC), paused=True)
    behind = Job("s", Script().spec(), datetime.now(UTC))
    queue.append([job])
    queue.append([behind])
    assert queue.begin() == [job]
    assert (queue.ready, queue.left_s(), queue.parked_too_long()) == (False, None, [])  # still loading
    job.add(Started(0, 1, 0.0))
    assert (queue.ready, queue.left_s()) == (True, 600.0)
    now[0] += 599.0
    job.apply(Step(run_id="r"))
    now[0] += 1.0
    job.add(fake_round(0))
    now[0] += 599.0
    assert (queue.left_s(), queue.parked_too_long()) == (1.0, [])
    now[0] += 1.0
    assert (queue.left_s(), queue.parked_too_long()) == (0.0, [job])
    job.apply(Resume(run_id="r"))
    assert (queue.ready, queue.left_s(), queue.parked_too_long()) == (False, None, [])


def test_a_cancelled_run_is_stuck_after_its_time_limit_unless_another_run_is_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(core.jobs.queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    queue = Queue(PAUSE_LIMIT_S, cancel_timeout_s=20.0)
    a, b = (Job(name, Script().spec(), datetime.now(UTC)) for name in "ab")
    queue.append([a, b])
    queue.begin()
    a.apply(Cancel(run_id="a"))
    now[0] += 19.0
    assert (queue.left_s(), queue.stuck()) == (1.0, [])
    now[0] += 1.0
    assert (queue.left_s(), queue.stuck()) == (0.0, [])  # b may be loading
    assert queue.left_s() == 20.0
    b.apply(Cancel(run_id="b"))
    now[0] += 20.0
    assert queue.stuck() == [a, b]


@pytest.mark.parametrize("culprit", ["signal", "other run"])
def test_a_paused_run_does_not_survive_its_worker_and_fails_with_its_rounds(
    jobs: Jobs, executor: ProcessExecutor, culprit: str
) -> None:
    a = started_paused(jobs)
    jobs.step(a)
    reached(jobs, a, lambda view: view.rounds == 1)
    if culprit == "signal":
        assert executor.pid is not None
        killed(executor.pid)
    else:
        assert finished(jobs, jobs.submit(Script(fault="kill", at=1).spec())).status == "failed"
    view = finished(jobs, a)
    assert (view.status, view.rounds, view.paused) == ("failed", 1, False)
    assert view.ended is not None and view.ended.error is not None
    assert view.ended.error.startswith("The engine process was killed by signal 9")
    assert view.ended.error.endswith("It was started again. The run's 1 whole round is kept.")
    assert not jobs.resume(a)
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"


def test_close_interrupts_paused_runs_and_leaves_no_process(sink: ListSink) -> None:
    executor = ProcessExecutor(COMMAND)
    jobs = Jobs(sink, "session", executor=executor, cancel_timeout_s=NEVER_S)
    a = started_paused(jobs)
    jobs.close()
    view = jobs.view(a)
    assert view is not None and (view.status, view.paused) == ("interrupted", False)
    assert sink.of(a) == ["submitted", "started", "ended"]
    assert executor.pid is None


# -- the real engine ------------------------------------------------------------------------------------------------

REQUESTS = [
    ask("abcabcabcabc", "model", "chain:3", max_new_tokens=40, seed=3),
    ask("abcabcabcabc", "model", "chain:3", temperature=0.8, max_new_tokens=40, seed=4),
    ask("abcabcabcabc", "model", "s3_k2_d6", temperature=0.8, max_new_tokens=40, seed=5),
]


def decided(rounds: list[Round]) -> list[tuple[object, ...]]:
    """What a run's rounds decided: all but their times."""
    return [(one.nodes, one.committed, one.committed_text, one.source, one.positions) for one in rounds]


def test_a_run_that_was_paused_stepped_and_resumed_decodes_what_it_decodes_undisturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECLENS_FAKE_DELAY", "0.002")
    jobs = Jobs(None, "session", [sys.executable, "-m", "core.worker", "--loader", "tests.helpers.fakes:load_pair"])
    for request in REQUESTS:
        spec = RunSpec(request=request)
        undisturbed = jobs.submit(spec)
        expected = decided(jobs.rounds(finished(jobs, undisturbed).run_id))
        assert len(expected) > 4

        disturbed = jobs.submit(spec, paused=True)
        jobs.step(disturbed)
        alone(jobs, request)
        reached(jobs, disturbed, lambda view: view.rounds >= 1)
        assert 1 <= len(jobs.rounds(disturbed)) < len(expected)
        jobs.resume(disturbed)
        jobs.pause(disturbed)  # wherever it is by now
        alone(jobs, request)
        jobs.step(disturbed)
        beside = jobs.submit(RunSpec(request=request.model_copy(update={"seed": 99})))
        jobs.resume(disturbed)
        view = finished(jobs, disturbed)
        finished(jobs, beside)
        assert view.status == "done" and view.summary is not None
        assert decided(jobs.rounds(disturbed)) == expected
    jobs.close()


def alone(jobs: Jobs, request: Request) -> None:
    """Another run has the device to itself."""
    other = RunSpec(request=request.model_copy(update={"seed": 77}))
    assert finished(jobs, jobs.submit(other)).status == "done"
