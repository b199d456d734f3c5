from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from core.protocol import (
    Cancel,
    Complaint,
    Loading,
    Message,
    Run,
    RunEnded,
    RunRound,
    RunStarted,
    Shutdown,
    Unload,
    decode_report,
    encode,
)
from core.records import Ended, Round
from core.types import RunSpec
from tests.fakes_worker import COMMAND, FINGERPRINT, PATIENCE_S, PREFILL_S, ROUND_S, Gate, Script, fake_round


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
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(message if isinstance(message, bytes) else encode(message))
        self.process.stdin.flush()

    def report(self) -> Message:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the worker is gone; it printed {self.stderr.decode()}"
        return decode_report(line)

    def until(self, kind: type[Message]) -> list[Message]:
        """All reports up to and including the first of this kind."""
        reports = [self.report()]
        while not isinstance(reports[-1], kind):
            reports.append(self.report())
        return reports

    def run(self, spec: RunSpec, run_id: str = "r") -> tuple[list[Round], Ended]:
        self.send(Run(run_id=run_id, spec=spec))
        reports = self.until(RunEnded)
        last = reports[-1]
        assert isinstance(last, RunEnded) and last.run_id == run_id
        return [report.round for report in reports if isinstance(report, RunRound)], last.ended

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
    reports = child.until(RunEnded)
    kinds = [report.kind for report in reports if isinstance(report, Loading | RunStarted | RunRound | RunEnded)]
    assert kinds == ["loading"] * 4 + ["started"] + ["round"] * 3 + ["ended"]
    loading = [(report.message, report.fraction) for report in reports if isinstance(report, Loading)]
    assert loading == [
        ("starting the engine …", None),
        ("loading weights …", 0.5),
        ("loading weights …", 1.0),
        ("reading the prompt …", None),
    ]
    started, ended = reports[4], reports[-1]
    assert isinstance(started, RunStarted) and started.started.fingerprint == FINGERPRINT
    rounds = [report.round for report in reports if isinstance(report, RunRound)]
    assert rounds == [fake_round(0, "L1 "), fake_round(1), fake_round(2)]
    assert isinstance(ended, RunEnded)
    assert ended.ended == Ended(0, "max_new_tokens", "L1 babab", PREFILL_S + 3 * ROUND_S)


def test_runs_sent_together_are_decoded_one_after_the_other(child: Child) -> None:
    child.send(*(Run(run_id=name, spec=Script(rounds=1).spec()) for name in "abc"))
    order = [last.run_id for last in (child.until(RunEnded)[-1] for _ in range(3)) if isinstance(last, RunEnded)]
    assert order == ["a", "b", "c"]


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
    reports = child.until(RunEnded)
    assert isinstance(reports[-1], RunEnded) and reports[-1].ended.stop_reason == "cancelled"
    assert child.wait() == 0
    assert closed.exists()


def test_shutdown_exits_the_worker_though_its_input_stays_open(child: Child) -> None:
    child.send(Shutdown())
    assert child.wait() == 0


def test_a_worker_whose_reader_is_gone_exits(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script(gate=gate.path).spec()))
    child.until(RunStarted)
    assert child.process.stdout is not None
    child.process.stdout.close()
    gate.open()
    assert child.wait() == 0


def test_cancel_ends_a_run_within_one_round_with_its_text_so_far(child: Child, gate: Gate, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    child.send(Run(run_id="r", spec=Script(rounds=100, gate=gate.path, closed=str(closed)).spec()))
    gate.open(2)
    gate.reached(3)
    child.until(RunRound)
    child.until(RunRound)
    child.send(Cancel(run_id="r"), b"answer me\n")
    child.until(Complaint)  # lines are heard in order, so the cancel has been heard, in the middle of the third round
    gate.open(50)
    reports = child.until(RunEnded)
    assert [report.round.index for report in reports if isinstance(report, RunRound)] == [2]
    assert isinstance(reports[-1], RunEnded)
    assert reports[-1].ended == Ended(0, "cancelled", "L1 babab", PREFILL_S + 3 * ROUND_S)
    assert closed.exists()


def test_cancel_while_weights_are_loading_ends_the_run_at_the_next_step_of_loading(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="r", spec=Script().spec(pair=f"gated:{gate.path}")))
    gate.reached()
    child.send(Cancel(run_id="r"), b"answer me\n")
    child.until(Complaint)
    gate.open()
    assert child.report() == RunEnded(run_id="r", ended=Ended(0, "cancelled", "", 0.0))


def test_cancel_of_a_run_that_waits_in_the_worker_ends_it_before_it_begins(child: Child, gate: Gate) -> None:
    child.send(Run(run_id="first", spec=Script(rounds=1, gate=gate.path).spec()))
    child.send(Run(run_id="second", spec=Script().spec()), Cancel(run_id="second"), b"answer me\n")
    child.until(Complaint)
    gate.open()
    child.until(RunEnded)
    assert child.report() == RunEnded(run_id="second", ended=Ended(0, "cancelled", "", 0.0))


def test_cancel_of_an_unknown_run_does_not_lie_in_wait_for_it(child: Child) -> None:
    child.send(Cancel(run_id="r"))
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"
    child.send(Cancel(run_id="r"))
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"\n", b"\xff\x00\xfe\n", b'{"kind": "run", "run_id": "x"}\n', b'{"kind": "dance"}\n']
)
def test_a_line_that_is_no_command_is_answered_and_the_worker_goes_on(child: Child, line: bytes) -> None:
    child.send(line)
    complaint = child.report()
    assert isinstance(complaint, Complaint)
    assert complaint.message.startswith("This line is no command of the engine's protocol")
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_a_prompt_of_a_megabyte_passes_through(child: Child) -> None:
    padding = "é\n\u2028🙂" * 250_000
    child.send(Run(run_id="r", spec=Script(padding=padding).spec()))
    started = child.until(RunStarted)[-1]
    assert isinstance(started, RunStarted) and started.started.prompt_tokens == len(padding) + 1


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


def test_ctrl_c_in_the_terminal_is_left_to_the_app(child: Child) -> None:
    child.run(Script().spec())
    child.process.send_signal(signal.SIGINT)
    assert child.run(Script().spec())[1].stop_reason == "max_new_tokens"


def test_an_engine_that_does_not_exist_fails_the_run_not_the_worker() -> None:
    child = Child("--engine", "tests.nowhere:generate")
    try:
        for _ in range(2):
            ended = child.run(Script().spec())[1]
            assert ended.error is not None
            assert ended.error.startswith(
                "'tests.nowhere:generate' can't be imported (No module named 'tests.nowhere')"
            )
    finally:
        child.clean_up()
