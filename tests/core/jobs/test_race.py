"""Runs submitted together: one place in the queue, rounds that alternate, ends of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from core.errors import BadInput, StorageUnavailable
from core.jobs.jobs import Jobs
from core.jobs.process_executor import ProcessExecutor
from core.records import Ended, Round
from core.types import PairSpec, Request, RunSpec
from tests.helpers.decoding import ask
from tests.helpers.fakes import load_pair as load_fake_pair
from tests.helpers.fakes_worker import COMMAND, PATIENCE_S, PREFILL_S, ROUND_S, Gate, Script
from tests.helpers.processes import killed
from tests.helpers.queueing import InlineExecutor, ListSink, finished, reached

if TYPE_CHECKING:
    from core.models.pair import Pair


def order(sink: ListSink, names: dict[str, str]) -> list[tuple[str, int]]:
    """Rounds of the named runs in the order of the sink: (name, index)."""
    calls = [(names[run_id], what) for call, run_id, what in sink.calls if call == "rounds" and run_id in names]
    return [(name, round.index) for name, rounds in calls for round in cast(Sequence[Round], rounds)]


def test_the_rounds_of_two_runs_alternate_until_each_ends(jobs: Jobs, sink: ListSink) -> None:
    a, b = jobs.submit_together([Script(rounds=3).spec(), Script(rounds=5).spec()])
    assert [finished(jobs, run_id).status for run_id in (a, b)] == ["done", "done"]
    turns = order(sink, {a: "a", b: "b"})
    assert turns == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3), ("b", 4)]
    calls = [(call, run_id) for call, run_id, _ in sink.calls if call != "rounds"]
    assert calls == [
        ("submitted", a), ("submitted", b), ("started", a), ("started", b), ("ended", a), ("ended", b)
    ]  # fmt: skip
    assert sink.calls.index(next(one for one in sink.calls if one[0] == "ended")) == 2 + 2 + 5


def test_a_race_is_one_job_in_the_queue_and_both_lanes_begin_at_once(jobs: Jobs, gates: Callable[[], Gate]) -> None:
    first, lane = gates(), gates()
    running = jobs.submit(Script(rounds=1, gate=first.path).spec())
    first.reached()
    a, b = jobs.submit_together([Script(gate=lane.path).spec(), Script().spec()])
    last = jobs.submit(Script().spec())
    views = [(view.run_id, view.status, view.position) for view in jobs.active()]
    assert views == [(running, "running", 0), (a, "queued", 1), (b, "queued", 1), (last, "queued", 2)]
    first.open()
    lane.reached()
    reached(jobs, b, lambda view: view.started is not None)
    views = [(view.run_id, view.status, view.position) for view in jobs.active()]
    assert views == [(a, "running", 0), (b, "running", 0), (last, "queued", 1)]
    lane.open(3)
    assert [finished(jobs, run_id).status for run_id in (a, b, last)] == ["done"] * 3


def test_cancelling_one_lane_of_a_queued_race_leaves_the_other_in_its_place(
    jobs: Jobs, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    running = jobs.submit(Script(rounds=1, gate=gate.path).spec())
    a, b = jobs.submit_together([Script().spec(), Script().spec()])
    gate.reached()
    assert jobs.cancel(a)
    assert [(view.run_id, view.position) for view in jobs.active()] == [(running, 0), (b, 1)]
    gate.open()
    assert (finished(jobs, a).status, finished(jobs, b).status) == ("cancelled", "done")


def test_cancelling_one_lane_ends_it_alone_within_a_round(jobs: Jobs, gates: Callable[[], Gate]) -> None:
    gate = gates()
    a, b = jobs.submit_together([Script(rounds=1_000_000).spec(), Script(rounds=3, gate=gate.path).spec()])
    gate.open()
    gate.reached(2)
    assert jobs.cancel(a)
    gate.open(2)
    view = finished(jobs, b)
    assert (view.status, view.rounds) == ("done", 3)
    view = finished(jobs, a)
    assert view.status == "cancelled" and view.rounds >= 2
    assert [round.index for round in jobs.rounds(a)] == list(range(view.rounds))


def test_a_lane_that_fails_does_not_touch_the_other(jobs: Jobs) -> None:
    a, b = jobs.submit_together([Script(fault="memory", at=1).spec(), Script().spec()])
    failed = finished(jobs, a)
    assert (failed.status, failed.rounds) == ("failed", 1)
    assert failed.ended is not None and failed.ended.error is not None and "ran out of memory" in failed.ended.error
    assert finished(jobs, b).status == "done"


def test_kill_9_of_the_worker_fails_both_lanes_with_their_whole_rounds(
    jobs: Jobs, sink: ListSink, executor: ProcessExecutor, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    a, b = jobs.submit_together([Script(rounds=9).spec(), Script(rounds=9, gate=gate.path).spec()])
    after = jobs.submit(Script().spec())
    gate.open(2)
    gate.reached(3)
    reached(jobs, a, lambda view: view.rounds == 3)
    old = executor.pid
    assert old is not None
    killed(old)
    for run_id, count in ((a, 3), (b, 2)):
        view = finished(jobs, run_id)
        assert (view.status, view.rounds) == ("failed", count)
        assert view.ended is not None and view.ended.error is not None
        assert view.ended.error.startswith("The engine process was killed by signal 9 (SIGKILL;")
        assert view.ended.error.endswith(f"It was started again. The run's {count} whole rounds are kept.")
        assert view.ended.e2e_s == PREFILL_S + count * ROUND_S
        assert sink.of(run_id) == ["submitted", "started", *["rounds"] * count, "ended"]
    assert finished(jobs, after).status == "done"
    assert executor.pid not in (None, old)


def test_two_different_pairs_race(jobs: Jobs, sink: ListSink) -> None:
    a, b = jobs.submit_together([Script(rounds=2).spec("one"), Script(rounds=2).spec("two")])
    views = [finished(jobs, run_id) for run_id in (a, b)]
    assert [view.ended and view.ended.text for view in views] == ["L1 bab", "L2 bab"]
    assert order(sink, {a: "a", b: "b"}) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_a_race_of_nothing_is_refused(jobs: Jobs) -> None:
    with pytest.raises(BadInput, match="at least one run"):
        jobs.submit_together([])


@dataclass
class FullAfterOne(ListSink):
    """Has room for one run."""

    taken: list[str] = field(default_factory=list)

    def submitted(self, run_id: str, spec: RunSpec, session: str, at: datetime) -> None:
        if self.taken:
            raise StorageUnavailable("The disk is full: make room.")
        self.taken.append(run_id)
        super().submitted(run_id, spec, session, at)


def test_a_sink_that_refuses_one_lane_refuses_the_race_and_no_lane_stays_queued(executor: ProcessExecutor) -> None:
    sink = FullAfterOne()
    jobs = Jobs(sink, "session", executor=executor)
    with pytest.raises(StorageUnavailable, match="disk is full"):
        jobs.submit_together([Script().spec(), Script().spec()])
    assert jobs.active() == []
    assert sink.of(sink.taken[0]) == ["submitted", "ended"]
    assert sink.calls[-1][2] == (Ended(0, "cancelled", "", 0.0), None)
    jobs.close()


def test_a_worker_is_not_killed_for_a_cancelled_run_while_another_has_the_device(
    sink: ListSink, gates: Callable[[], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ProcessExecutor(COMMAND)
    jobs = Jobs(sink, "session", executor=executor, cancel_timeout_s=0.3)
    left_s = jobs._queue.left_s
    times = threading.Semaphore(0)

    def counted() -> float | None:
        left = left_s()
        if left == 0.0:
            times.release()
        return left

    monkeypatch.setattr(jobs._queue, "left_s", counted)
    gate = gates()
    a, b = jobs.submit_together([Script(rounds=2).spec(), Script(rounds=1, gate=gate.path).spec()])
    gate.reached()
    pid = executor.pid
    jobs.cancel(a)
    for _ in range(2):
        assert times.acquire(timeout=PATIENCE_S)
    gate.open()
    assert (finished(jobs, a).status, finished(jobs, b).status) == ("cancelled", "done")
    assert executor.pid == pid
    jobs.close()


def test_a_lane_that_is_stuck_can_be_ended_by_cancelling_both(sink: ListSink, gates: Callable[[], Gate]) -> None:
    jobs = Jobs(sink, "session", COMMAND, cancel_timeout_s=0.05)
    gate = gates()
    a, b = jobs.submit_together([Script(rounds=9).spec(), Script(rounds=9, gate=gate.path).spec()])
    gate.reached()
    reached(jobs, a, lambda view: view.rounds == 1)
    jobs.cancel(b)
    jobs.cancel(a)
    assert [(view.status, view.rounds) for view in (finished(jobs, a), finished(jobs, b))] == [
        ("cancelled", 1),
        ("cancelled", 0),
    ]
    jobs.close()


def test_a_paused_run_that_dies_with_a_stuck_one_fails_with_the_reason(
    sink: ListSink, gates: Callable[[], Gate]
) -> None:
    jobs = Jobs(sink, "session", COMMAND, cancel_timeout_s=0.05)
    paused = jobs.submit(Script().spec(), paused=True)
    reached(jobs, paused, lambda view: view.started is not None)
    gate = gates()
    stuck = jobs.submit(Script(gate=gate.path).spec())
    gate.reached()
    jobs.cancel(stuck)
    assert finished(jobs, stuck).status == "cancelled"
    view = finished(jobs, paused)
    assert view.status == "failed" and view.ended is not None
    assert view.ended.error == (
        "The engine process was killed: a run had not ended 0.05 s after its cancel. It was started again. "
        "The run's 0 whole rounds are kept."
    )
    jobs.close()


# -- the real engine ------------------------------------------------------------------------------------------------

GREEDY = ask("abcabcabcabc", "model", "chain:3", max_new_tokens=30, seed=3)
SAMPLED = ask("abcabcabcabc", "model", "s3_k2_d6", temperature=0.8, max_new_tokens=30, seed=4)
PLAIN = ask("abcabcabcabc", temperature=0.8, max_new_tokens=20, seed=5)


def decided(rounds: list[Round]) -> list[tuple[object, ...]]:
    """What a run's rounds decided: all but their times."""
    return [(one.nodes, one.committed, one.committed_text, one.source, one.positions) for one in rounds]


def raced_as_alone(load: Any, specs: list[RunSpec]) -> None:
    """Decode these alone and together: the same rounds, and turns that alternate."""
    sink = ListSink()
    jobs = Jobs(sink, "session", executor=InlineExecutor(load))
    alone = [jobs.submit(spec) for spec in specs]
    raced = jobs.submit_together(specs)
    for one, other in zip(alone, raced, strict=True):
        assert finished(jobs, one).status == finished(jobs, other).status == "done"
        assert decided(jobs.rounds(one)) == decided(jobs.rounds(other))
        assert len(jobs.rounds(one)) > 2
    turns = "".join(name for name, _ in order(sink, {run_id: str(lane) for lane, run_id in enumerate(raced)}))
    shortest = min(len(jobs.rounds(run_id)) for run_id in raced)
    assert turns.startswith("012"[: len(raced)] * shortest)
    jobs.close()


@pytest.mark.parametrize("requests", [(GREEDY, SAMPLED), (SAMPLED, SAMPLED), (PLAIN, GREEDY, SAMPLED)])
def test_lanes_of_a_race_decode_what_each_decodes_alone(requests: tuple[Request, ...]) -> None:
    raced_as_alone(
        load_fake_pair,
        [RunSpec(pair=PairSpec(name=f"pair {lane % 2}"), request=request) for lane, request in enumerate(requests)],
    )


def test_lanes_that_share_the_layers_of_one_model_decode_what_each_decodes_alone(tiny_pair: Pair) -> None:
    requests = [
        ask("abcabcabcabc", drafter, shape, temperature=0.8, max_new_tokens=24)
        for drafter, shape in (("early_exit:1", "chain:3"), ("early_exit:1", "s3_k2_d6"), ("none", "none"))
    ]
    raced_as_alone(lambda spec, progress: tiny_pair, [RunSpec(request=request) for request in requests])
