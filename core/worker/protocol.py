"""The lines between the app and the engine's process: one JSON object a line, one frozen class per message.

Commands go to the worker, reports come back. Strings may hold any character: JSON escapes line feeds, so a line is a
message. Floats survive the trip exactly, NaN and infinity included.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.errors import BadInput
from core.records import Ended, Round, Started
from core.types import RunSpec


class Message(BaseModel):
    """Base of all messages: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


# -- to the worker --------------------------------------------------------------------------------------------------


class Run(Message):
    """Decode this; answered by any number of Loading, then RunStarted, any number of RunRound and one RunEnded.

    Runs that are open at once take turns, a round each. One that begins ``paused`` stands before its first round.
    """

    kind: Literal["run"] = "run"
    run_id: str
    spec: RunSpec
    paused: bool = False


class Together(Message):
    """Open all of these before any of them takes its first turn: a race."""

    kind: Literal["together"] = "together"
    runs: tuple[Run, ...]


class Cancel(Message):
    """End this run within one round, or at the next step of loading; a run that is over or unknown is left alone."""

    kind: Literal["cancel"] = "cancel"
    run_id: str


class Pause(Message):
    """Let this run stand, cache and all, after the round in progress; before its first round if it is still loading."""

    kind: Literal["pause"] = "pause"
    run_id: str


class Resume(Message):
    """Let a paused run take turns again."""

    kind: Literal["resume"] = "resume"
    run_id: str


class Step(Message):
    """Let a paused run tell one more round; sent twice, two more. A run that isn't paused is left alone."""

    kind: Literal["step"] = "step"
    run_id: str


class Unload(Message):
    """Free every loaded pair: those of open runs once these are over."""

    kind: Literal["unload"] = "unload"


class Shutdown(Message):
    """Exit within one round of each open run. As end of input, but also when somebody else holds the pipe open."""

    kind: Literal["shutdown"] = "shutdown"


Command = Run | Together | Cancel | Pause | Resume | Step | Unload | Shutdown


# -- from the worker ------------------------------------------------------------------------------------------------


class Loading(Message):
    """What happens before the prompt is in the cache. ``fraction`` is the share done in [0, 1], None when unknown."""

    kind: Literal["loading"] = "loading"
    run_id: str
    message: str
    fraction: float | None = None


class RunStarted(Message):
    """The prompt is in the cache; ``started`` carries the fingerprint."""

    kind: Literal["started"] = "started"
    run_id: str
    started: Started


class RunRound(Message):
    """One whole round, in order of index."""

    kind: Literal["round"] = "round"
    run_id: str
    round: Round


class RunEnded(Message):
    """The run is over, exactly once."""

    kind: Literal["ended"] = "ended"
    run_id: str
    ended: Ended


class Complaint(Message):
    """A line that is no command, told in a sentence; the worker goes on."""

    kind: Literal["complaint"] = "complaint"
    message: str


Happening = Loading | RunStarted | RunRound
"""What is told while a run goes on."""

Report = Happening | RunEnded | Complaint

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="kind")])
_REPORT: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


def encode(message: Message) -> bytes:
    """The message as one line of UTF-8 with its line feed."""
    return message.model_dump_json().encode() + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in ``line``; raises BadInput with a sentence."""
    try:
        return _COMMAND.validate_json(line)
    except ValidationError as error:
        raise BadInput(_complaint("command", line, error)) from None


def decode_report(line: bytes) -> Report:
    """The report in ``line``; raises BadInput with a sentence."""
    try:
        return _REPORT.validate_json(line)
    except ValidationError as error:
        raise BadInput(_complaint("report", line, error)) from None


def _complaint(noun: str, line: bytes, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "line"
    shown = line[:80].decode(errors="backslashreplace").strip() + ("…" if len(line) > 80 else "")
    return f"This line is no {noun} of the engine's protocol ({where}: {first['msg']}): {shown!r}; it was ignored."
