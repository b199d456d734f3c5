from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import core.jobs.jobs
from core.errors import EngineFault, StorageUnavailable
from core.jobs.jobs import Jobs
from core.jobs.process_executor import ProcessExecutor
from core.records import Ended, Event, Round, Started
from core.run_id import is_run_id
from core.types import ChainShape, PromptLookupDrafter, Request, RunSpec, Sampling, SmallModelDrafter, Stops
from core.worker.protocol import Begin, Cancel, Command, InvalidCommand, encode
from tests.helpers.fakes_worker import (
    COMMAND,
    FINGERPRINT,
    PATIENCE_S,
    PREFILL_S,
    ROUND_S,
    Gate,
    Script,
    cycles,
    fake_round,
    load_pair,
)
from tests.helpers.processes import killed
from tests.helpers.queueing import NEVER_S, InlineExecutor, ListSink, finished, reached


def test_runs_are_decoded_in_the_order_of_submission_and_their_positions_move_up(
    jobs: Jobs, sink: ListSink, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    first = jobs.submit(Script(rounds=1, gate=gate.path).spec())
    gate.reached()
    rest = [jobs.submit(Script(rounds=1).spec()) for _ in range(3)]
    assert [(view.run_id, view.status, view.position) for view in jobs.active()] == [
        (first, "running", 0),
        (rest[0], "queued", 1),
        (rest[1], "queued", 2),
        (rest[2], "queued", 3),
    ]
    assert jobs.cancel(rest[0])
    assert [view.position for view in jobs.active()] == [0, 1, 2]
    gate.open()
    assert [finished(jobs, run_id).status for run_id in (first, *rest)] == ["done", "cancelled", "done", "done"]
    assert jobs.active() == []
    assert [run_id for call, run_id, _ in sink.calls if call == "started"] == [first, rest[1], rest[2]]
    assert [first, *rest] == sorted([first, *rest]) and all(map(is_run_id, rest))


def test_a_run_that_is_done_shows_its_records_and_the_sink_has_the_same_in_order(jobs: Jobs, sink: ListSink) -> None:
    spec = Script(rounds=3).spec()
    run_id = jobs.submit(spec)
    view = finished(jobs, run_id)
    rounds = [fake_round(0, "L1 "), fake_round(1), fake_round(2)]
    assert (view.status, view.position, view.message, view.progress, view.rounds) == ("done", 0, "", None, 3)
    assert view.ended == Ended(0, "max_new_tokens", "L1 babab", PREFILL_S + 3 * ROUND_S)
    assert view.summary is not None and (view.summary.rounds, view.summary.accepted) == (3, 3)
    assert view.started_at is not None and view.ended_at is not None
    assert view.submitted_at <= view.started_at <= view.ended_at
    assert jobs.rounds(run_id) == rounds
    assert [(call, what) for call, _, what in sink.calls] == [
        ("submitted", (spec, "session")),
        ("started", view.started),
        *[("rounds", (round,)) for round in rounds],
        ("ended", (view.ended, view.summary)),
    ]
    times = [sink.times[call, run_id] for call in ("submitted", "started", "ended")]
    assert times == [view.submitted_at, view.started_at, view.ended_at]


def test_rounds_are_read_from_a_cursor_on_while_the_run_goes_on(jobs: Jobs, gates: Callable[[], Gate]) -> None:
    gate = gates()
    run_id = jobs.submit(Script(rounds=5, gate=gate.path).spec())
    gate.open(2)
    reached(jobs, run_id, lambda view: view.rounds == 2)
    gate.reached(3)
    assert [round.index for round in jobs.rounds(run_id)] == [0, 1]
    gate.open(3)
    finished(jobs, run_id)
    assert [round.index for round in jobs.rounds(run_id, 2)] == [2, 3, 4]
    assert [round.index for round in jobs.rounds(run_id, -7)] == [0, 1, 2, 3, 4]
    assert jobs.rounds(run_id, 99) == []


def test_loading_shows_its_message_and_share_and_both_vanish_at_the_start(
    jobs: Jobs, gates: Callable[[], Gate]
) -> None:
    load, rounds = gates(), gates()
    run_id = jobs.submit(Script(gate=rounds.path).spec(pair=f"gated:{load.path}"))
    load.reached()
    view = reached(jobs, run_id, lambda view: view.progress is not None)
    assert (view.status, view.message, view.progress, view.started) == ("running", "loading weights …", 0.5, None)
    load.open()
    rounds.reached()
    view = reached(jobs, run_id, lambda view: view.started is not None)
    assert (view.message, view.progress) == ("", None)
    rounds.open(3)


def test_an_unknown_run_has_no_view_no_rounds_and_nothing_to_cancel(jobs: Jobs) -> None:
    assert jobs.view("nothing") is None
    assert jobs.rounds("nothing") == []
    assert jobs.cancel("nothing") is False
    assert jobs.wait("nothing") is None


def test_a_running_run_is_cancelled_with_whole_rounds_and_its_text_so_far(
    jobs: Jobs, sink: ListSink, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    run_id = jobs.submit(Script(rounds=1_000_000, gate=gate.path).spec())
    gate.open(2)
    gate.reached(3)
    assert jobs.cancel(run_id) is True
    view = jobs.view(run_id)
    assert view is not None and (view.status, view.message) == ("running", "stopping …")
    assert jobs.cancel(run_id) is False
    gate.close()
    view = finished(jobs, run_id)
    rounds = jobs.rounds(run_id)
    assert view.status == "cancelled" and view.ended is not None and view.summary is not None
    assert [round.index for round in rounds] == list(range(view.rounds))
    assert view.ended.text == "".join(piece for round in rounds for piece in round.committed_text)
    assert sink.of(run_id) == ["submitted", "started", *["rounds"] * view.rounds, "ended"]
    assert jobs.cancel(run_id) is False


def test_a_queued_run_is_cancelled_at_once_without_start_or_summary(
    jobs: Jobs, sink: ListSink, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    running = jobs.submit(Script(rounds=1, gate=gate.path).spec())
    queued = jobs.submit(Script().spec())
    gate.reached()
    assert jobs.cancel(queued) is True
    view = jobs.view(queued)
    assert view is not None and (view.status, view.started, view.summary) == ("cancelled", None, None)
    assert view.ended == Ended(0, "cancelled", "", 0.0)
    assert sink.of(queued) == ["submitted", "ended"]
    gate.open()
    assert finished(jobs, running).status == "done"


def test_a_worker_that_does_not_honour_a_cancel_is_killed_and_the_next_run_gets_a_new_one(
    sink: ListSink, gates: Callable[[], Gate]
) -> None:
    executor = ProcessExecutor(COMMAND)
    jobs = Jobs(sink, "session", executor=executor, cancel_timeout_s=0.05)
    gate = gates()
    stuck = jobs.submit(Script(rounds=5, gate=gate.path).spec())
    after = jobs.submit(Script().spec())
    gate.open(2)
    gate.reached(3)
    reached(jobs, stuck, lambda view: view.rounds == 2)
    old = executor.pid
    jobs.cancel(stuck)
    view = finished(jobs, stuck)
    assert (view.status, view.rounds) == ("cancelled", 2)
    assert view.ended == Ended(0, "cancelled", "L1 bab", PREFILL_S + 2 * ROUND_S)
    assert finished(jobs, after).status == "done"
    assert executor.pid not in (None, old)
    jobs.close()


def test_a_worker_stuck_while_loading_weights_is_killed_on_cancel(sink: ListSink, gates: Callable[[], Gate]) -> None:
    jobs = Jobs(sink, "session", COMMAND, cancel_timeout_s=0.05)
    load = gates()
    run_id = jobs.submit(Script().spec(pair=f"gated:{load.path}"))
    load.reached()
    jobs.cancel(run_id)
    view = finished(jobs, run_id)
    assert (view.status, view.started, view.ended) == ("cancelled", None, Ended(0, "cancelled", "", 0.0))
    jobs.close()


def test_after_kill_9_of_the_worker_the_run_failed_with_its_whole_rounds_and_the_queue_goes_on(
    jobs: Jobs, sink: ListSink, executor: ProcessExecutor, gates: Callable[[], Gate]
) -> None:
    gate = gates()
    hit = jobs.submit(Script(rounds=9, gate=gate.path).spec())
    after = jobs.submit(Script().spec())
    gate.open(3)
    gate.reached(4)
    reached(jobs, hit, lambda view: view.rounds == 3)
    old = executor.pid
    assert old is not None
    killed(old)
    view = finished(jobs, hit)
    assert view.status == "failed" and view.ended is not None and view.summary is not None
    assert view.ended.error == (
        "The engine process was killed by signal 9 (SIGKILL; if nobody did that on purpose, the machine ran out of "
        "memory: lower the settings or choose a smaller pair). It was started again. The run's 3 whole rounds are kept."
    )
    assert view.ended.text == "L1 babab"
    assert [round.index for round in jobs.rounds(hit)] == [0, 1, 2]
    assert sink.of(hit) == ["submitted", "started", "rounds", "rounds", "rounds", "ended"]
    assert finished(jobs, after).status == "done"
    assert executor.pid not in (None, old)


def test_a_worker_that_exits_fails_its_run_with_its_code_and_its_last_words(jobs: Jobs) -> None:
    view = finished(jobs, jobs.submit(Script(fault="exit", at=1).spec()))
    assert view.ended is not None and view.ended.error == (
        "The engine process ended with exit code 3. Its last words: “the driver is gone”. "
        "It was started again. The run's 1 whole round is kept."
    )
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"


def test_a_worker_killed_between_runs_is_replaced_without_any_run_failing(
    jobs: Jobs, executor: ProcessExecutor
) -> None:
    finished(jobs, jobs.submit(Script().spec()))
    old = executor.pid
    assert old is not None
    killed(old)
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"
    assert executor.pid not in (None, old)


def test_a_worker_that_cannot_even_start_fails_the_run_in_a_sentence() -> None:
    jobs = Jobs(None, "session", ["/nowhere/python"])
    view = finished(jobs, jobs.submit(Script().spec()))
    assert view.status == "failed" and view.ended is not None and view.ended.error is not None
    assert view.ended.error.startswith("The engine process can't be started (")
    jobs.close()


def test_a_worker_that_dies_at_once_fails_each_run_and_never_loops() -> None:
    jobs = Jobs(None, "session", [sys.executable, "-c", "raise SystemExit('no torch here')"])
    for run_id in [jobs.submit(Script().spec()) for _ in range(2)]:
        view = finished(jobs, run_id)
        assert view.status == "failed" and view.ended is not None and view.ended.error is not None
        assert "Its last words: “no torch here”." in view.ended.error
    jobs.close()


def test_a_worker_that_breaks_the_protocol_fails_the_run_and_is_stopped() -> None:
    invalid = encode(InvalidCommand(message="This line is no command.")).decode()
    for line, words in (("hello\n", "This line is no report"), (invalid, "This line is no command.")):
        program = f"import sys; sys.stdin.readline(); sys.stdout.write({line!r}); sys.stdout.flush(); sys.stdin.read()"
        jobs = Jobs(None, "session", [sys.executable, "-c", program])
        view = finished(jobs, jobs.submit(Script().spec()))
        assert view.status == "failed" and view.ended is not None and view.ended.error is not None
        assert view.ended.error.startswith(f"The engine process was not understood and stopped. {words}")
        jobs.close()


def test_a_line_cut_short_by_a_kill_is_no_round(tmp_path: Path) -> None:
    program = 'import sys, os; sys.stdin.readline(); os.write(1, b\'{"kind": "round", "run_id": \'); os._exit(0)'
    jobs = Jobs(None, "session", [sys.executable, "-c", program])
    view = finished(jobs, jobs.submit(Script().spec()))
    assert (view.status, view.rounds) == ("failed", 0)
    assert view.ended is not None and view.ended.error is not None
    assert view.ended.error.startswith("The engine process ended with exit code 0.")
    jobs.close()


def test_a_run_that_meets_nan_fails_and_the_next_run_is_fine_on_the_same_worker(
    jobs: Jobs, executor: ProcessExecutor
) -> None:
    broken = finished(jobs, jobs.submit(Script(fault="nan", at=1).spec()))
    pid = executor.pid
    assert broken.status == "failed" and broken.rounds == 1 and broken.ended is not None
    assert broken.ended.error == "Round 1 met a row of NaN at node 0: choose another precision."
    assert finished(jobs, jobs.submit(Script().spec())).status == "done"
    assert executor.pid == pid


def test_two_threads_that_submit_and_watch_at_once_get_their_own_runs(jobs: Jobs, sink: ListSink) -> None:
    seen: dict[str, list[tuple[str, int, str]]] = {}

    def work(name: str, rounds: int) -> None:
        seen[name] = []
        for _ in range(5):
            view = finished(jobs, jobs.submit(Script(rounds=rounds, padding=name).spec()))
            seen[name].append((view.status, len(jobs.rounds(view.run_id)), view.spec.request.prompt))

    threads = [threading.Thread(target=work, args=(name, rounds)) for name, rounds in (("one", 2), ("two", 7))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, rounds in (("one", 2), ("two", 7)):
        assert seen[name] == [("done", rounds, Script(rounds=rounds, padding=name).spec().request.prompt)] * 5
    order = [run_id for call, run_id, _ in sink.calls if call == "submitted"]
    assert order == sorted(order) == [run_id for call, run_id, _ in sink.calls if call == "ended"]


def test_close_interrupts_running_and_queued_runs_and_leaves_no_process(
    sink: ListSink, executor: ProcessExecutor, gates: Callable[[], Gate]
) -> None:
    jobs = Jobs(sink, "session", executor=executor)
    gate = gates()
    running = jobs.submit(Script(rounds=9, gate=gate.path).spec())
    queued = jobs.submit(Script().spec())
    gate.open(2)
    gate.reached(3)
    reached(jobs, running, lambda view: view.rounds == 2)
    pid = executor.pid
    assert pid is not None and psutil.pid_exists(pid)
    jobs.close()
    assert not psutil.pid_exists(pid)
    views = [jobs.view(running), jobs.view(queued)]
    assert [view and (view.status, view.rounds) for view in views] == [("interrupted", 2), ("interrupted", 0)]
    assert sink.of(running) == ["submitted", "started", "rounds", "rounds", "ended"]
    assert sink.of(queued) == ["submitted", "ended"]
    assert executor.pid is None
    with pytest.raises(EngineFault, match="takes no more runs"):
        jobs.submit(Script().spec())
    jobs.close()


def test_close_kills_a_worker_that_reads_nothing(gates: Callable[[], Gate]) -> None:
    executor = ProcessExecutor(COMMAND, stop_timeout_s=0.05)
    jobs = Jobs(None, "session", executor=executor)
    gate = gates()
    run_id = jobs.submit(Script(gate=gate.path).spec())
    gate.reached()
    pid = executor.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    jobs.close()
    assert not psutil.pid_exists(pid)
    view = jobs.view(run_id)
    assert view is not None and view.status == "interrupted"


@pytest.mark.parametrize("way", ["cancel", "close"])
def test_a_worker_that_does_not_even_read_a_long_prompt_can_be_ended(way: str) -> None:
    program = "import sys, threading; sys.stdout.write('\\n'); threading.Event().wait()"
    executor = ProcessExecutor([sys.executable, "-c", program], stop_timeout_s=0.05)
    jobs = Jobs(None, "session", executor=executor, cancel_timeout_s=0.05)
    run_id = jobs.submit(Script(padding="x" * 1_000_000).spec())
    reached(jobs, run_id, lambda view: view.status == "running")
    if way == "cancel":
        jobs.cancel(run_id)
        assert finished(jobs, run_id).status == "cancelled"
    jobs.close()
    view = jobs.view(run_id)
    assert view is not None and view.status == ("cancelled" if way == "cancel" else "interrupted")


def test_close_without_any_run_starts_nothing(executor: ProcessExecutor) -> None:
    jobs = Jobs(None, "session", executor=executor)
    jobs.close()
    assert executor.pid is None


APP = """
import sys, threading
from core.jobs.process_executor import ProcessExecutor
from core.jobs.jobs import Jobs
from tests.helpers.fakes_worker import COMMAND, Script
executor = ProcessExecutor(COMMAND)
jobs = Jobs(None, "session", executor=executor)
run_id = jobs.submit(Script(gate=sys.argv[1]).spec())
jobs.wait(run_id, lambda view: view.started is not None)
print(executor.pid, flush=True)
threading.Event().wait()
"""


def test_kill_9_of_the_app_leaves_no_worker_behind(gates: Callable[[], Gate]) -> None:
    gate = gates()
    app = subprocess.Popen([sys.executable, "-c", APP, gate.path], stdout=subprocess.PIPE)
    assert app.stdout is not None
    worker = psutil.Process(int(app.stdout.readline()))
    gate.reached()
    app.kill()
    app.wait()
    app.stdout.close()
    _, alive = psutil.wait_procs([worker], timeout=PATIENCE_S)
    assert alive == []


def test_a_sink_that_refuses_the_run_refuses_the_submission(executor: ProcessExecutor) -> None:
    jobs = Jobs(ListSink(breaks="submitted"), "session", executor=executor)
    with pytest.raises(StorageUnavailable, match="disk is full"):
        jobs.submit(Script().spec())
    assert jobs.active() == []
    jobs.close()


def test_a_sink_that_breaks_in_a_run_leaves_the_run_alone_and_gets_no_more_of_it(executor: ProcessExecutor) -> None:
    sink = ListSink(breaks="rounds")
    jobs = Jobs(sink, "session", executor=executor)
    run_id = jobs.submit(Script().spec())
    view = finished(jobs, run_id)
    assert (view.status, view.rounds) == ("done", 3)
    assert view.message == "This run is not being kept: The disk is full: make room."
    assert sink.of(run_id) == ["submitted", "started"]
    jobs.close()


def test_only_the_latest_ended_runs_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.jobs.jobs, "KEEP_RUNS", 3)
    monkeypatch.setattr(core.jobs.jobs, "KEEP_ROUNDS", 10)
    jobs = Jobs(None, "session", executor=InlineExecutor(load_pair, cycles))

    def kept(rounds: list[int]) -> list[int]:
        run_ids = [jobs.submit(Script(rounds=count).spec()) for count in rounds]
        jobs.wait(run_ids[-1])
        return [len(jobs.rounds(run_id)) for run_id in run_ids]

    assert kept([1, 2, 1, 2, 1]) == [0, 0, 1, 2, 1]
    assert kept([5, 5, 1]) == [0, 5, 1]
    assert kept([99]) == [99]
    jobs.close()


def test_the_log_file_takes_what_the_worker_prints_and_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.jobs.process_executor.FILE_BYTES", 100)
    log = tmp_path / "logs" / "engine.log"
    jobs = Jobs(None, "session", executor=ProcessExecutor(COMMAND, log_file=log))
    assert finished(jobs, jobs.submit(Script(rounds=20, noisy=True).spec())).status == "done"
    jobs.close()
    files = sorted(path.name for path in log.parent.iterdir())
    assert files == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(path.stat().st_size <= 100 for path in log.parent.iterdir())
    assert "from a child" in log.read_text()


def test_unload_frees_the_pair_after_the_run_in_flight(jobs: Jobs) -> None:
    texts: list[str] = []
    for unload in (False, True, False):
        view = finished(jobs, jobs.submit(Script(rounds=1).spec()))
        assert view.ended is not None
        texts.append(view.ended.text)
        if unload:
            jobs.unload()
    assert texts == ["L1 b", "L1 b", "L2 b"]


def test_a_run_is_cancelled_from_within_its_own_round_and_the_next_one_is_not() -> None:
    """Whoever sees a round may cancel its run at once: the report comes in the engine's own thread."""

    class Cancelling(ListSink):
        def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
            super().rounds(run_id, rounds)
            if run_id == first and rounds[-1].index == 1:
                jobs.cancel(run_id)

    jobs = Jobs(Cancelling(), "session", executor=InlineExecutor(load_pair, cycles))
    first = ""  # until its id is known, no round comes: it begins paused
    first = jobs.submit(Script(rounds=9).spec(), paused=True)
    jobs.resume(first)
    view = finished(jobs, first)
    assert (view.status, view.rounds) == ("cancelled", 2)
    view = finished(jobs, jobs.submit(Script(rounds=9).spec()))
    assert (view.status, view.rounds) == ("done", 9)
    jobs.close()


def test_a_run_that_is_cancelled_while_it_is_being_opened_ends_as_cancelled(sink: ListSink) -> None:
    cancels: list[threading.Thread] = []
    commands: list[Command] = []

    class Cancelled(InlineExecutor):
        def send(self, command: Command) -> None:
            if isinstance(command, Begin):
                cancels.append(threading.Thread(target=jobs.cancel, args=(command.runs[0].run_id,)))
                cancels[0].start()
                cancels[0].join(0.05)
            commands.append(command)
            super().send(command)

    jobs = Jobs(sink, "session", executor=Cancelled(load_pair, cycles), cancel_timeout_s=NEVER_S)
    run_id = jobs.submit(Script(rounds=1_000_000).spec())
    assert finished(jobs, run_id).status == "cancelled"
    assert [type(command) for command in commands] == [Begin, Cancel]
    cancels[0].join()
    jobs.close()


def test_a_run_whose_records_break_a_conservation_law_has_failed() -> None:
    def engine(requests: Sequence[Request], pair: object, **_: object) -> Generator[tuple[Event, ...], None, None]:
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        yield replace(fake_round(0), committed=(5,), committed_text=("a",)), Ended(0, "eos", "a", 1.0)

    sink = ListSink()
    jobs = Jobs(sink, "session", executor=InlineExecutor(load_pair, engine))
    view = finished(jobs, jobs.submit(Script().spec()))
    assert view.status == "failed" and view.ended is not None and view.summary is not None
    assert view.ended.error == (
        "The run's records don't add up (round 1: committed is not accepted plus its correction or bonus): "
        "please report this with the run's settings."
    )
    assert view.summary.stop_reason == "failed"
    jobs.close()


REAL = Request(
    prompt="abcabcabcabcabc",
    chat=False,
    sampling=Sampling(temperature=0.8),
    stops=Stops(max_new_tokens=40),
    drafter=SmallModelDrafter(),
    shape=ChainShape(gamma=3),
    seed=7,
)


def test_the_real_engine_gives_the_same_run_in_its_process_and_inline() -> None:
    command = (sys.executable, "-m", "core.worker", "--loader", "tests.helpers.fakes:load_pair")
    runs: list[tuple[object, ...]] = []
    for executor in (ProcessExecutor(command), InlineExecutor("tests.helpers.fakes:load_pair")):
        jobs = Jobs(None, "session", executor=executor)
        view = finished(jobs, jobs.submit(RunSpec(request=REAL)))
        assert view.status == "done" and view.summary is not None and view.started is not None, view.ended
        assert view.summary.output_tokens == 40 and view.summary.accepted > 0
        rounds = [(one.nodes, one.committed, one.committed_text, one.positions) for one in jobs.rounds(view.run_id)]
        runs.append((view.started.fingerprint, view.summary.text, view.summary.stop_reason, rounds))
        jobs.close()
    assert runs[0] == runs[1]
    assert runs[0][0] is not None


def test_a_prompt_of_200_kilobytes_beyond_the_context_is_refused_in_a_sentence_and_the_next_run_decodes() -> None:
    jobs = Jobs(None, "session", executor=InlineExecutor("tests.helpers.fakes:load_pair"))
    book = jobs.submit(RunSpec(request=REAL.model_copy(update={"prompt": "abcd " * 40_000})))
    after = jobs.submit(RunSpec(request=REAL))
    view = finished(jobs, book)
    assert view.status == "failed" and view.ended is not None
    assert view.ended.error == (
        "The prompt has 200,000 tokens and fake target holds 100,000, the answer included: shorten it."
    )
    assert finished(jobs, after).status == "done"
    jobs.close()


def test_the_real_engine_ends_a_cancelled_run_with_its_rounds_text_and_peak_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECLENS_FAKE_DELAY", "0.01")
    jobs = Jobs(None, "session", [sys.executable, "-m", "core.worker", "--loader", "tests.helpers.fakes:load_pair"])
    endless = REAL.model_copy(update={"stops": Stops(max_new_tokens=90_000)})
    run_id = jobs.submit(RunSpec(request=endless))
    reached(jobs, run_id, lambda view: view.rounds >= 3)
    jobs.cancel(run_id)
    view = finished(jobs, run_id)
    assert view.status == "cancelled" and view.ended is not None and view.summary is not None
    text = "".join(piece for one in jobs.rounds(run_id) for piece in one.committed_text)
    assert view.ended.text.startswith(text) and len(view.ended.text) - len(text) <= 1  # a character may be half done
    assert view.summary.peak_memory_bytes is not None and view.summary.peak_memory_bytes > 10**7
    jobs.close()


@pytest.mark.model
def test_the_embedded_model_decodes_in_its_process_is_cancelled_and_decodes_again_on_the_same_worker() -> None:
    executor = ProcessExecutor()
    jobs = Jobs(None, "session", executor=executor)
    request = Request(
        prompt="Repeat: one two three four five six seven. Again: one two three four",
        sampling=Sampling(temperature=0.0),
        stops=Stops(max_new_tokens=12),
        drafter=PromptLookupDrafter(),
        shape=ChainShape(gamma=4),
    )
    first = jobs.submit(RunSpec(request=request))
    long = jobs.submit(RunSpec(request=request.model_copy(update={"stops": Stops(max_new_tokens=2000)})))
    last = jobs.submit(RunSpec(request=request))
    done = jobs.wait(first, timeout_s=180.0)
    assert done is not None and done.status == "done", done
    assert done.summary is not None and 1 <= done.summary.output_tokens <= 12 and done.summary.text
    pid = executor.pid
    reached(jobs, long, lambda view: view.rounds >= 1)
    jobs.cancel(long)
    assert finished(jobs, long).status in ("cancelled", "done")  # the model may have ended by itself
    again = finished(jobs, last)
    assert again.summary is not None and again.summary.text == done.summary.text
    assert again.started is not None and done.started is not None
    assert again.started.fingerprint == done.started.fingerprint
    assert again.started_at is not None and again.ended_at is not None
    assert executor.pid == pid
    jobs.close()
