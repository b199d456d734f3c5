from __future__ import annotations

import dataclasses

import pytest
from pydantic import ValidationError

from core.errors import BadInput
from core.records import Ended, Position, Round, Started, TopToken
from core.types import ChainShape, PairSpec, Request, RunSpec, Sampling, SmallModelDrafter, SpecCascade, Stops
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
    decode_command,
    decode_report,
    encode,
)
from tests.helpers.fakes_worker import FINGERPRINT, fake_round

HOSTILE = 'line\nfeed\r\u2028\u2029\x00\x1b[31m"quotes" \\ ⟨e2⟩ 🙂 \ufffd </script>'
SPEC = RunSpec(
    pair=PairSpec(name="a+b", precision="bfloat16", device="cuda"),
    request=Request(
        prompt=HOSTILE,
        sampling=Sampling(temperature=0.7, top_p=0.1 + 0.2, min_p=5e-324),
        stops=Stops(max_new_tokens=1, stop_strings=("\n", " ")),
        drafter=SmallModelDrafter(),
        shape=ChainShape(gamma=3),
        rule=SpecCascade(p_base=0.5, redraw="target", recompute=True),
        seed=2**63 - 1,
    ),
)
POSITION = Position(node=-1, top=(TopToken(1, HOSTILE, 1 / 3, None),), p_rest=2 / 3, q_rest=None)
ROUND = dataclasses.replace(fake_round(7, HOSTILE), positions=(POSITION,), wall_s=1e-9 / 3)
COMMANDS = [
    Begin(runs=(Run(run_id="r", spec=SPEC),)),
    Cancel(run_id="r"),
    Begin(runs=(Run(run_id="r", spec=SPEC, paused=True),)),
    Begin(runs=(Run(run_id="r", spec=SPEC), Run(run_id="s", spec=SPEC, paused=True))),
    Pause(run_id="r"),
    Resume(run_id="r"),
    Step(run_id="r"),
    Unload(),
    Shutdown(),
]
REPORTS = [
    Loading(run_id="r", message="loading …", fraction=0.25),
    Loading(run_id="r", message="starting …"),
    RunEvent(run_id="r", event=Started(0, 12, 0.1, fingerprint=FINGERPRINT)),
    RunEvent(run_id="r", event=Started(0, 12, 0.1)),
    RunEvent(run_id="r", event=ROUND),
    RunEvent(run_id="r", event=Ended(0, "eos", HOSTILE, 1.5, 2**40, "cuda_allocated")),
    RunEvent(run_id="r", event=Ended(0, "failed", "", 0.0, error="It broke.")),
    Loaded(pairs=(SPEC.pair, PairSpec())),
    Loaded(pairs=()),
    InvalidCommand(message="Not understood."),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.kind)
def test_a_command_survives_the_trip_as_one_line(command: Message) -> None:
    line = encode(command)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_command(line) == command


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.kind)
def test_a_report_survives_the_trip_as_one_line(report: Message) -> None:
    line = encode(report)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_report(line) == report


def test_records_come_back_as_the_records_of_the_engine_with_exact_floats() -> None:
    report = decode_report(encode(RunEvent(run_id="r", event=ROUND)))
    assert isinstance(report, RunEvent) and isinstance(report.event, Round)
    assert type(report.event.nodes[0]) is type(ROUND.nodes[0])
    assert report.event.nodes[0].p == 0.1 + 0.2 != 0.3
    assert report.event.wall_s == 1e-9 / 3


def test_an_infinite_score_is_not_turned_into_a_missing_one() -> None:
    node = dataclasses.replace(ROUND.nodes[0], score=float("-inf"))
    report = decode_report(encode(RunEvent(run_id="r", event=dataclasses.replace(ROUND, nodes=(node,)))))
    assert isinstance(report, RunEvent) and isinstance(report.event, Round)
    assert report.event.nodes[0].score == float("-inf")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"garbage\n", "Invalid JSON"),
        (b"\n", "Invalid JSON"),
        (b"\xff\xfe\n", "Invalid JSON"),
        (b"[1, 2]\n", "object"),
        (b'{"kind": "dance"}\n', "dance"),
        (b'{"run_id": "r"}\n', "discriminator"),
        (b'{"kind": "cancel"}\n', "cancel.run_id"),
        (b'{"kind": "cancel", "run_id": "r", "now": true}\n', "cancel.now"),
        (
            b'{"kind": "begin", "runs": [{"run_id": "r", "spec": {"request": {"prompt": " "}}}]}\n',
            "the prompt is empty",
        ),
    ],
)
def test_a_line_that_is_no_command_is_refused_in_a_sentence(line: bytes, what: str) -> None:
    with pytest.raises(BadInput, match="This line is no command of the engine's protocol") as caught:
        decode_command(line)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_is_no_report_and_a_report_is_no_command() -> None:
    with pytest.raises(BadInput, match="no report"):
        decode_report(encode(Shutdown()))
    with pytest.raises(BadInput, match="no command"):
        decode_command(encode(InvalidCommand(message="")))


def test_a_long_line_is_quoted_only_in_part() -> None:
    with pytest.raises(BadInput) as caught:
        decode_command(b"x" * 1_000_000)
    assert len(str(caught.value)) < 400


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        COMMANDS[1].run_id = "other"  # pyright: ignore[reportAttributeAccessIssue]
