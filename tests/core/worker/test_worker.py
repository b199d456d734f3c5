from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.records import Ended, Round, Started
from core.types import RunSpec
from core.worker.protocol import (
    Begin,
    Cancel,
    InvalidCommand,
    Loaded,
    Loading,
    Message,
    Pause,
    Resume,
    Run,
    RunEvent,
    Shutdown,
    Step,
    Unload,
    decode_report,
    encode,
)
from tests.helpers.fakes_worker import COMMAND, FINGERPRINT, PATIENCE_S, PREFILL_S, ROUND_S, Gate, Script, fake_round


class Child:
    """A worker on two pipes; killed when a test hangs, so that reading from it always ends."""

    def __init__(self, *options: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*COMMAND, *options], stdin=pipe, stdout=pipe, stderr=pipe)
        self.stderr = b""
        self._drain = threading.Thread(target=self._read_stderr)
        self._drain.start()
        self._watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        self._watchdog.start()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.stderr = stream.read()

    def send(self, *messages: Message | bytes) -> None:
        """Write these; a run by itself is begun."""
        assert self.process.stdin is not None
        for message in messages:
            if isinstance(message, Run):
                message = Begin(runs=(message,))
            self.process.stdin.write(message if isinstance(message, bytes) else encode(message))
        self.process.stdin.flush()

    def any_report(self) -> Message:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the worker is gone; it printed {self.stderr.decode()}"
        return decode_report(line)

    def report(self) -> Message:
        """The next report about a run or a command."""
        while isinstance(report := self.any_report(), Loaded):
            pass
        return report

    def until(self, kind: type[Message | Started | Round | Ended]) -> list[Message]:
        """All reports up to and including the first of this kind, or with an event of this kind."""
        reports = [self.report()]
        while not isinstance(reports[-1], kind) and not isinstance(event_of(reports[-1]), kind):
            reports.append(self.report())
        return reports

    def run(self, spec: RunSpec, run_id: str = "r") -> tuple[list[Round], Ended]:
        self.send(Run(run_id=run_id, spec=spec))
        reports = self.until(Ended)
        assert isinstance(reports[-1], RunEvent) and reports[-1].run_id == run_id
        ended = event_of(reports[-1])
        assert isinstance(ended, Ended)
        return rounds_of(reports), ended

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        code = self.process.wait()
        self._drain.join()
        return code

    def clean_up(self) -> None:
        self.process.kill()
        self.wait()
        self._watchdog.cancel()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def event_of(report: Message) -> Started | Round | Ended | None:
    return report.event if isinstance(report, RunEvent) else None


def rounds_of(reports: list[Message]) -> list[Round]:
    return [event for report in reports if isinstance(event := event_of(report), Round)]


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.clean_up()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


def test_a_run_reports_loading_start_every_round_and_its_end_in_order(child: Child) -> None:
    child.send(Run(run_id="r", spec=Script(rounds=3).spec()))
    reports = child.until(Ended)
    kinds = [type(event_of(report) or report) for report in reports]
    assert kinds == [Loading] * 4 + [Started] + [Round] * 3 + [Ended]
    loading = [(report.message, report.fraction) for report in reports if isinstance(report, Loading)]
    assert loading == [
        ("starting the engine …", None),
        ("loading weights …", 0.5),
        ("loading weights …", 1.0),
        ("reading the prompt …", None),
    ]
    assert event_of(reports[4]) == Started(0, 1, PREFILL_S, fingerprint=FINGERPRINT)
    assert rounds_of(reports) == [fake_round(0, "L1 "), fake_round(1), fake_round(2)]
    assert event_of(reports[-1]) == Ended(0, "max_new_tokens", "L1 babab", PREFILL_S + 3 * ROUND_S)


def turns(reports: list[Message]) -> list[tuple[str, int]]:
    """The rounds in the order of their reports, each as its run's id and its index."""
    events = [(report.run_id, report.event) for report in reports if isinstance(report, RunEvent)]
    return [(run_id, event.index) for run_id, event in events if isinstance(event, Round)]


def until_ends(child: Child, count: int) -> list[Message]:
    return [report for _ in range(count) for report in child.until(Ended)]


def ends(reports: list[Message]) -> dict[str, str]:
    return {run_id: ended.stop_reason for run_id, ended in ends_of(reports).items()}


def ends_of(reports: list[Message]) -> dict[str, Ended]:
    events = [(report.run_id, report.event) for report in reports if isinstance(report, RunEvent)]
    return {run_id: event for run_id, event in events if isinstance(event, Ended)}


def run(name: str, paused: bool = False, pair: str = "fake", **script: Any) -> Run:
    return Run(run_id=name, spec=Script(**script).spec(pair), paused=paused)


def test_rounds_of_runs_opened_together_alternate_from_the_first_to_the_last(child: Child) -> None:
    child.send(Begin(runs=(run("a"), run("b"))))
    reports = until_ends(child, 2)
    assert turns(reports) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    order = [one.run_id for one in reports if isinstance(one, RunEvent) and not isinstance(one.event, Round)]
    assert order == ["a", "b", "a", "b"]
    assert ends(reports) == {"a": "max_new_tokens", "b": "max_new_tokens"}


def test_the_longer_of_two_runs_goes_on_alone_and_three_take_turns_too(child: Child) -> None:
    child.send(Begin(runs=(run("a", rounds=1), run("b", rounds=4), run("c", rounds=2))))
    order = [name for name, _ in turns(until_ends(child, 3))]
    assert order == ["a", "b", "c", "b", "c", "b", "b"]


def test_a_pair_that_is_in_memory_gives_its_run_no_head_start(child: Child) -> None:
    child.run(Script().spec("a"))
    child.send(Begin(runs=(run("1", pair="a"), run("2", pair="b"))))
    assert turns(until_ends(child, 2))[:4] == [("1", 0), ("2", 0), ("1", 1), ("2", 1)]


def test_two_pairs_race_side_by_side_and_the_next_pair_displaces_the_one_nobody_uses(
    child: Child, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path / name) for name in "ab"]
    child.send(Begin(runs=(run("1", pair="a", gate=gates[0].path), run("2", pair="b", rounds=1, gate=gates[1].path))))
    gates[0].reached()
    gates[1].open()
    gates[0].open()
    child.until(Ended)  # 2 is over, 1 goes on
    child.send(run("3", pair="a", rounds=1), run("4", pair="c", rounds=1), run("5", pair="a", rounds=1))
    gates[0].open(3)
    reports = until_ends(child, 4)
    texts = {run_id: ended.text for run_id, ended in ends_of(reports).items()}
    assert texts == {"1": "L1 babab", "3": "L1 b", "4": "L3 b", "5": "L1 b"}
    assert child.run(Script(rounds=1).spec("b"))[1].text == "L4 b"
    for gate in gates:
        gate.close()


@pytest.mark.parametrize("fault", ["nan", "unexpected", "memory"])
def test_a_fault_in_one_run_of_a_race_does_not_touch_the_other(child: Child, fault: str) -> None:
    child.send(Begin(runs=(run("a", fault=fault, at=1), run("b"))))
    reports = until_ends(child, 2)
    assert ends(reports) == {"a": "failed", "b": "max_new_tokens"}
    assert turns(reports) == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]


def test_a_pair_that_cannot_be_loaded_does_not_touch_the_other_run_of_a_race(child: Child) -> None:
    child.send(Begin(runs=(run("a", pair="missing"), run("b"))))
    assert ends(until_ends(child, 2)) == {"a": "failed", "b": "max_new_tokens"}


def test_cancelling_one_run_of_a_race_ends_it_within_a_round_and_the_other_goes_on(child: Child, gate: Gate) -> None:
    child.send(Begin(runs=(run("a", rounds=100), run("b", gate=gate.path))))
    gate.reached()
    child.send(Cancel(run_id="a"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open(3)
    reports = until_ends(child, 2)
    assert turns(reports) == [("b", 0), ("b", 1), ("b", 2)]
    assert ends(reports) == {"a": "cancelled", "b": "max_new_tokens"}


def test_a_paused_run_leaves_the_device_to_another_and_resumes_where_it_was(child: Child, gate: Gate) -> None:
    child.send(run("a", rounds=4, gate=gate.path))
    gate.reached()
    child.send(Pause(run_id="a"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open(4)
    assert child.until(Round) == [RunEvent(run_id="a", event=fake_round(0, "L1 "))]
    child.send(run("b", rounds=2))
    assert turns(until_ends(child, 1)) == [("b", 0), ("b", 1)]
    child.send(Resume(run_id="a"))
    reports = until_ends(child, 1)
    assert turns(reports) == [("a", 1), ("a", 2), ("a", 3)]
    assert event_of(reports[-1]) == Ended(0, "max_new_tokens", "L1 bababab", PREFILL_S + 4 * ROUND_S)


def test_a_run_that_begins_paused_reports_its_start_and_one_round_for_each_step(child: Child) -> None:
    child.send(run("a", paused=True), b"answer me\n")
    child.until(Started)
    for index in range(3):
        child.send(Step(run_id="a"))
        assert turns([child.report()]) == [("a", index)]
    assert ends([child.report()]) == {"a": "max_new_tokens"}


def test_two_steps_at_once_are_two_rounds_and_pausing_again_makes_none(child: Child) -> None:
    child.send(run("a", paused=True), Step(run_id="a"), Step(run_id="a"))
    child.until(Started)
    assert turns([child.report(), child.report()]) == [("a", 0), ("a", 1)]
    child.send(Pause(run_id="a"))
    assert child.run(Script(rounds=1).spec(), "b")[1].stop_reason == "max_new_tokens"


def test_a_step_takes_its_turn_between_the_rounds_of_another_run(child: Child, gate: Gate) -> None:
    child.send(run("a", paused=True))
    child.until(Started)
    child.send(run("b", gate=gate.path))
    gate.open()
    child.until(Round)
    gate.reached(2)
    child.send(Step(run_id="a"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open(2)
    assert turns(until_ends(child, 1)) == [("b", 1), ("a", 0), ("b", 2)]


def test_a_run_may_be_paused_while_its_weights_are_loading(child: Child, gate: Gate) -> None:
    child.send(run("a", pair=f"gated:{gate.path}"))
    gate.reached()
    child.send(Pause(run_id="a"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open()
    child.until(Started)
    assert child.run(Script(rounds=1).spec("b"), "b")[1].text == "L2 b"


def test_a_paused_run_can_be_cancelled_and_gives_its_cache_back(child: Child, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    child.send(run("a", paused=True, closed=str(closed)), Step(run_id="a"))
    child.until(Round)
    child.send(Cancel(run_id="a"))
    assert child.report() == RunEvent(run_id="a", event=Ended(0, "cancelled", "L1 b", PREFILL_S + ROUND_S))
    assert closed.exists()


def test_end_of_input_ends_every_open_run_the_paused_ones_too(child: Child, tmp_path: Path) -> None:
    child.send(run("a", paused=True, closed=str(tmp_path / "a")), run("b", paused=True, closed=str(tmp_path / "b")))
    child.until(Started)
    child.until(Started)
    child.end_input()
    assert ends(until_ends(child, 2)) == {"a": "cancelled", "b": "cancelled"}
    assert child.wait() == 0
    assert (tmp_path / "a").exists() and (tmp_path / "b").exists()


def test_commands_to_an_unknown_run_have_no_effect_when_it_comes(child: Child) -> None:
    child.send(Pause(run_id="r"), Step(run_id="r"), Resume(run_id="r"))
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_end_of_input_exits_an_idle_worker(child: Child) -> None:
    child.run(Script().spec())
    child.end_input()
    assert child.wait() == 0


def test_end_of_input_exits_a_worker_that_is_stuck_in_a_round(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script(gate=gate.path).spec()))
    gate.reached()
    child.end_input()
    assert child.wait() == 0


def test_end_of_input_exits_a_worker_that_is_loading_weights(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script().spec(pair=f"gated:{gate.path}")))
    gate.reached()
    child.end_input()
    assert child.wait() == 0


def test_end_of_input_closes_the_generator_of_a_run_that_still_makes_rounds(
    child: Child, gate: Gate, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    child.send(Run(run_id="r", spec=Script(rounds=1_000_000, gate=gate.path, closed=str(closed)).spec()))
    gate.reached()
    child.end_input()
    gate.close()
    reports = child.until(Ended)
    assert ends(reports) == {"r": "cancelled"}
    assert child.wait() == 0
    assert closed.exists()


def test_shutdown_exits_the_worker_though_its_input_stays_open(child: Child) -> None:
    child.send(Shutdown())
    assert child.wait() == 0


def test_a_worker_whose_reader_is_gone_exits(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script(gate=gate.path).spec()))
    child.until(Started)
    assert child.process.stdout is not None
    child.process.stdout.close()
    gate.open()
    assert child.wait() == 0


def test_cancel_ends_a_run_within_one_round_with_its_text_so_far(child: Child, gate: Gate, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    child.send(Run(run_id="r", spec=Script(rounds=100, gate=gate.path, closed=str(closed)).spec()))
    gate.open(2)
    gate.reached(3)
    child.until(Round)
    child.until(Round)
    child.send(Cancel(run_id="r"), b"answer me\n")
    child.until(InvalidCommand)  # commands are read in order, so the cancel came in the middle of the third round
    gate.open(50)
    reports = child.until(Ended)
    assert turns(reports) == [("r", 2)]
    assert event_of(reports[-1]) == Ended(0, "cancelled", "L1 babab", PREFILL_S + 3 * ROUND_S)
    assert closed.exists()


def test_cancel_while_weights_are_loading_ends_the_run_at_the_next_step_of_loading(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script().spec(pair=f"gated:{gate.path}")))
    gate.reached()
    child.send(Cancel(run_id="r"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open()
    assert child.report() == RunEvent(run_id="r", event=Ended(0, "cancelled", "", 0.0))


def test_cancel_of_a_run_that_waits_for_its_first_turn_ends_it_before_it_begins(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="first", spec=Script(rounds=1, gate=gate.path).spec()))
    gate.reached()
    child.send(Run(run_id="second", spec=Script().spec()), Cancel(run_id="second"), b"answer me\n")
    child.until(InvalidCommand)
    gate.open()
    reports = until_ends(child, 2)
    assert ends(reports) == {"first": "max_new_tokens", "second": "cancelled"}
    assert not any(isinstance(report, Loading) and report.run_id == "second" for report in reports)


def test_cancel_of_an_unknown_run_has_no_effect_when_it_comes(child: Child) -> None:
    child.send(Cancel(run_id="r"))
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"
    child.send(Cancel(run_id="r"))
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"\n", b"\xff\x00\xfe\n", b'{"kind": "run", "run_id": "x"}\n', b'{"kind": "dance"}\n']
)
def test_a_line_that_is_no_command_is_answered_and_the_worker_goes_on(child: Child, line: bytes) -> None:
    child.send(line)
    report = child.report()
    assert isinstance(report, InvalidCommand)
    assert report.message.startswith("This line is no command of the engine's protocol")
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_a_prompt_of_a_megabyte_passes_through(child: Child) -> None:
    padding = "é\n\u2028🙂" * 250_000
    child.send(Run(run_id="r", spec=Script(padding=padding).spec()))
    started = child.until(Started)[-1]
    assert event_of(started) == Started(0, len(padding) + 1, PREFILL_S, fingerprint=FINGERPRINT)


def test_what_libraries_and_their_children_print_does_not_reach_the_protocol(child: Child) -> None:
    rounds, ended = child.run(Script(rounds=2, noisy=True).spec())
    assert (len(rounds), ended.stop_reason) == (2, "max_new_tokens")
    child.end_input()
    assert child.wait() == 0
    for noise in (b"from print", b"from sys.stdout", b"from the descriptor", b"from a child"):
        assert child.stderr.count(noise) == 2


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("nan", "Round 1 met a row of NaN at node 0: choose another precision."),
        (
            "unexpected",
            r"The run broke on something unexpected (KeyError: 'layer\nsecond line'). "
            "Later runs are not affected; the engine's log holds the details for a report.",
        ),
        (
            "memory",
            "The device ran out of memory (9 GB wanted); the run's caches were freed. Lower max new tokens, the length "
            "of the prompt or the number of drafted candidates, or choose a smaller pair or precision.",
        ),
    ],
)
def test_a_fault_fails_its_run_in_a_sentence_and_the_next_run_is_fine(child: Child, fault: str, sentence: str) -> None:
    rounds, ended = child.run(Script(rounds=3, fault=fault, at=1).spec())
    assert len(rounds) == 1
    assert ended == Ended(0, "failed", "L1 b", PREFILL_S + ROUND_S, error=sentence)
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"
    child.end_input()
    child.wait()
    assert b"Traceback" in child.stderr


def test_a_pair_that_cannot_be_loaded_fails_the_run_with_the_loaders_sentence(child: Child) -> None:
    rounds, ended = child.run(Script().spec(pair="missing"))
    assert rounds == []
    assert ended == Ended(0, "failed", "", 0.0, error="The pair missing is not on this machine: choose another.")
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_a_pair_is_loaded_once_until_another_or_unload(child: Child) -> None:
    texts = [child.run(Script(rounds=1).spec(pair))[1].text for pair in ("a", "a", "b", "a")]
    child.send(Unload())
    texts.append(child.run(Script(rounds=1).spec("a"))[1].text)
    assert texts == ["L1 b", "L1 b", "L2 b", "L3 b", "L4 b"]


def test_the_loaded_pairs_are_reported_after_every_load_eviction_and_unloading(child: Child) -> None:
    def loaded(name: str, **script: Any) -> list[list[str]]:
        """The pairs by each report while a run of the pair ``name`` begins and ends."""
        child.send(run("r", pair=name, **script))
        return until(lambda report: isinstance(event_of(report), Ended))

    def until(last: Callable[[Message], bool]) -> list[list[str]]:
        reports = [child.any_report()]
        while not last(reports[-1]):
            reports.append(child.any_report())
        return [[pair.name for pair in report.pairs] for report in reports if isinstance(report, Loaded)]

    assert loaded("a") == [["a"]]
    assert loaded("a") == []
    assert loaded("b") == [[], ["b"]]
    assert loaded("missing") == [[]]
    assert loaded("a") == [["a"]]
    child.send(Unload())
    assert until(lambda report: isinstance(report, Loaded)) == [[]]
    child.send(Begin(runs=(run("1", pair="a"), run("2", pair="b", rounds=1))))
    assert until(lambda report: ends([report]) == {"1": "max_new_tokens"}) == [["a"], ["a", "b"]]


def test_ctrl_c_in_the_terminal_is_left_to_the_app(child: Child) -> None:
    child.run(Script().spec())
    child.process.send_signal(signal.SIGINT)
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_an_engine_that_does_not_exist_fails_the_run_not_the_worker() -> None:
    child = Child("--engine", "tests.nowhere:cycles")
    try:
        for _ in range(2):
            ended = child.run(Script().spec())[1]
            assert ended.error is not None
            assert ended.error.startswith("'tests.nowhere:cycles' can't be imported (No module named 'tests.nowhere')")
    finally:
        child.clean_up()
