"""Where runs are decoded, behind one small protocol: here in a thread, in process_executor.py in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.errors import EngineFault
from core.worker.open_run import Engine
from core.worker.pair_cache import Loader
from core.worker.protocol import (
    Cancel,
    Complaint,
    Happening,
    Pause,
    Report,
    Resume,
    Run,
    RunEnded,
    Shutdown,
    Step,
    Together,
    Unload,
)
from core.worker.runner import ENGINE, LOADER, Runner
from core.worker.turns import Lanes

STOPPED = "The engine is stopped, so this run can't be decoded: start the app again."


class WorkerLost(EngineFault):
    """The engine's process ended, or had to be ended, under its runs; the message says how and why."""


@dataclass(frozen=True, slots=True)
class RunLost:
    """The run's process is gone and nothing more will be heard of it; ``sentence`` says how and why."""

    run_id: str
    sentence: str


News = Happening | RunEnded | RunLost
Listen = Callable[[News], None]
"""Hears of a run in order, from one thread at a time, until RunEnded or RunLost; must not raise."""


class Executor(Protocol):
    """Decodes the runs that are open, a round each in turn. Methods may be called from any thread and return soon.

    Pausing, resuming and stepping a run that isn't open do nothing.
    """

    def begin(self, runs: Sequence[Run], listen: Listen) -> None:
        """Open these runs at once, so that their rounds alternate; raises WorkerLost, EngineFault when none is open."""
        ...

    def cancel(self, run_id: str) -> None:
        """End this run within one of its rounds, also when it is only about to begin."""
        ...

    def pause(self, run_id: str) -> None:
        """Let this run stand after its round in progress; it keeps its cache."""
        ...

    def resume(self, run_id: str) -> None:
        """Let a paused run take turns again."""
        ...

    def step(self, run_id: str) -> None:
        """Let a paused run tell one more round."""
        ...

    def unload(self) -> None:
        """Free the loaded pairs, each after the runs that use it."""
        ...

    def alive(self) -> bool:
        """Whether what the last run loaded can still be there."""
        ...

    def close(self) -> None:
        """End the open runs, all of them heard of when this returns; nothing can be begun afterwards."""
        ...


class InlineExecutor:
    """Decodes in a thread of this process, as the worker does in its own: for tests."""

    def __init__(self, loader: Loader | str = LOADER, engine: Engine | str = ENGINE) -> None:
        self._lanes = Lanes(Runner(loader, engine), self._tell)
        self._lock = threading.Lock()  # guards everything below
        self._listeners: dict[str, Listen] = {}
        self._cancelled: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, runs: Sequence[Run], listen: Listen) -> None:
        """See :class:`Executor`."""
        with self._lock:
            if self._closed:
                raise EngineFault(STOPPED)
            self._listeners |= {run.run_id: listen for run in runs}
            self._lanes.hear(Together(runs=tuple(runs)))
            for run_id in self._cancelled & self._listeners.keys():
                self._lanes.hear(Cancel(run_id=run_id))
            if self._thread is None:
                self._thread = threading.Thread(target=self._lanes.serve, name="engine", daemon=True)
                self._thread.start()

    def cancel(self, run_id: str) -> None:
        """See :class:`Executor`."""
        with self._lock:
            self._cancelled.add(run_id)
            self._lanes.hear(Cancel(run_id=run_id))

    def pause(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._lanes.hear(Pause(run_id=run_id))

    def resume(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._lanes.hear(Resume(run_id=run_id))

    def step(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._lanes.hear(Step(run_id=run_id))

    def unload(self) -> None:
        """See :class:`Executor`."""
        self._lanes.hear(Unload())

    def alive(self) -> bool:
        """See :class:`Executor`."""
        return not self._closed

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._lock:
            self._closed = True
            self._lanes.hear(Shutdown())
        if self._thread is not None:
            self._thread.join()

    def _tell(self, report: Report) -> None:
        if isinstance(report, Complaint):
            return
        with self._lock:
            listen = self._listeners[report.run_id]
            if isinstance(report, RunEnded):
                del self._listeners[report.run_id]
                self._cancelled.discard(report.run_id)
        listen(report)
