"""The interface between the queue and whatever decodes: process_executor.py, and a thread in tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from core.errors import EngineFault
from core.types import PairSpec
from core.worker.protocol import Command, Loaded, Loading, RunEvent

STOPPED = "The engine is stopped, so this run can't be decoded: start the app again."


class WorkerLost(EngineFault):
    """The engine's process ended, or had to be ended, under its runs; the message says how and why."""


@dataclass(frozen=True, slots=True)
class RunLost:
    """The run's process is gone, so no event of the run follows; ``sentence`` says how and why."""

    run_id: str
    sentence: str


Listen = Callable[[Loading | RunEvent | RunLost | Loaded], None]
"""Receives the reports of a run in order, from one thread at a time; an Ended or a RunLost is the last. Must not
raise. Loaded only announces that ``Executor.loaded`` has changed."""


class Executor(Protocol):
    """Decodes the runs that are open, one round each in turn. Methods may be called from any thread and return soon,
    and never call the listener."""

    def connect(self, listen: Listen) -> None:
        """Set the listener; called once, before the first command."""
        ...

    def send(self, command: Command) -> None:
        """Pass a command to the engine. Only Begin raises, and then no run of it is open: EngineFault."""
        ...

    def loaded(self) -> tuple[PairSpec, ...]:
        """The pairs in the engine's memory now, by its own report."""
        ...

    def kill(self, run_id: str, sentence: str) -> None:
        """End the engine that has this run open, by force; its runs are lost for the reason in ``sentence``."""
        ...

    def close(self) -> None:
        """End every open run. Their last reports have been delivered when this returns; Begin raises afterwards."""
        ...
