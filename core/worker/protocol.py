"""Messages between the app and the engine's process: one JSON object a line, one frozen class per message.

Commands go to the worker, reports come back. Strings may hold any character: JSON escapes line feeds, so a line is a
message. Floats survive the trip exactly, NaN and infinity included.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from core.errors import BadInput
from core.records import Ended, Round, Started
from core.types import PairSpec, RunSpec


class Message(BaseModel):
    """Base of all messages: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


# -- to the worker --------------------------------------------------------------------------------------------------


class Run(Message):
    """One run to decode. With ``paused`` it loads its pair and reads its prompt, then waits before its first round."""

    run_id: str
    spec: RunSpec
    paused: bool = False


class Begin(Message):
    """Open these runs, all of them before any takes its first turn; open runs take turns, one round each.

    Each run is answered by any number of Loading, then its RunEvents: one Started, any number of Rounds, one Ended.
    """

    kind: Literal["begin"] = "begin"
    runs: tuple[Run, ...]


class Cancel(Message):
    """End the run within one round, or at the next progress report of its load. Ignored when the run is not open."""

    kind: Literal["cancel"] = "cancel"
    run_id: str


class Pause(Message):
    """Stop the run after its current round and keep its cache; a run that is still loading stops before its first
    round. Steps not yet taken are dropped. Ignored when the run is not open."""

    kind: Literal["pause"] = "pause"
    run_id: str


class Resume(Message):
    """Let a paused run take turns again. Ignored when the run is not open."""

    kind: Literal["resume"] = "resume"
    run_id: str


class Step(Message):
    """Let a paused run make one more round; two Steps make two more. Ignored when the run is not open or not paused."""

    kind: Literal["step"] = "step"
    run_id: str


class Unload(Message):
    """Free every loaded pair; a pair that open runs use is freed when the last of them ends."""

    kind: Literal["unload"] = "unload"


class Shutdown(Message):
    """Cancel every open run and exit. End of input does the same; this works while another process holds the pipe."""

    kind: Literal["shutdown"] = "shutdown"


RunCommand = Cancel | Pause | Resume | Step
"""A command to one open run."""

Command = Begin | RunCommand | Unload | Shutdown


# -- from the worker ------------------------------------------------------------------------------------------------


class Loading(Message):
    """Progress of a run before its prompt is in the cache. ``fraction``: share done in [0, 1], None when unknown."""

    kind: Literal["loading"] = "loading"
    run_id: str
    message: str
    fraction: float | None = None


class RunEvent(Message):
    """One record of a run. Started carries the fingerprint; Rounds come whole and in order of index; Ended comes last,
    exactly once."""

    kind: Literal["event"] = "event"
    run_id: str
    # Most events are rounds. No two of these records share their required fields, so the first that fits is the one.
    event: Annotated[Round | Started | Ended, Field(union_mode="left_to_right")]


class Loaded(Message):
    """The pairs in the worker's memory, in the order in which they were loaded; sent after every change."""

    kind: Literal["loaded"] = "loaded"
    pairs: tuple[PairSpec, ...]


class InvalidCommand(Message):
    """A line that the worker could not read as a command, described in one sentence. The worker goes on."""

    kind: Literal["invalid_command"] = "invalid_command"
    message: str


Report = Loading | RunEvent | Loaded | InvalidCommand

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="kind")])
_REPORT: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


def encode(message: Message) -> bytes:
    """The message as one line of UTF-8, line feed included."""
    return message.model_dump_json().encode() + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in ``line``; raises BadInput with a sentence."""
    try:
        return _COMMAND.validate_json(line)
    except ValidationError as error:
        raise BadInput(_problem("command", line, error)) from None


def decode_report(line: bytes) -> Report:
    """The report in ``line``; raises BadInput with a sentence."""
    try:
        return _REPORT.validate_json(line)
    except ValidationError as error:
        raise BadInput(_problem("report", line, error)) from None


def _problem(noun: str, line: bytes, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "line"
    shown = line[:80].decode(errors="backslashreplace").strip() + ("…" if len(line) > 80 else "")
    return f"This line is no {noun} of the engine's protocol ({where}: {first['msg']}): {shown!r}; it was ignored."
