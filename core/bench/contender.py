"""Who is measured: one decoder of prepared jobs, our engine or a peer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from core.bench.settings import Setting
from core.types import Request


@dataclass(frozen=True, slots=True)
class Job:
    """One batch to decode: the same prompts as ``requests`` and, encoded, as token ids in ``prompts``; each decodes at
    most ``tokens`` new tokens and ends with the pair's end tokens."""

    setting: Setting
    requests: tuple[Request, ...]
    prompts: tuple[tuple[int, ...], ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job gave: new token ids per prompt, an end token included.

    ``rounds``: target passes that emitted tokens, summed over prompts. ``decode_s``: wall seconds after the prefill,
    ``forward_s`` of them inside forwards. None where it wasn't observed.
    """

    outputs: tuple[tuple[int, ...], ...]
    rounds: int | None = None
    decode_s: float | None = None
    forward_s: float | None = None


class Contender(Protocol):
    """A decoder. ``peer`` is None for our engine."""

    @property
    def peer(self) -> str | None:
        """The name in rows."""
        ...

    def unsupported(self, setting: Setting) -> str:
        """Why it can't decode this setting, or ""."""
        ...

    def ready(self, job: Job, watched: bool) -> AbstractContextManager[Callable[[], Answer]]:
        """Prepares what isn't timed; what it gives decodes the job, and that is timed. ``watched``: this turn isn't
        timed, so that passes may be counted at a cost."""
        ...
