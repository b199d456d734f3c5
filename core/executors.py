"""Where runs are decoded, behind one small protocol: here in the caller's thread, in core/engine_process.py apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from core.errors import EngineFault
from core.protocol import Happening
from core.records import Ended
from core.runner import ENGINE, LOADER, Engine, Loader, Runner
from core.types import RunSpec

STOPPED = "The engine is stopped, so this run can't be decoded: start the app again."


class WorkerLost(EngineFault):
    """The engine's process ended, or had to be ended, under a run; the message says how and why."""


class Executor(Protocol):
    """Decodes one run at a time. ``execute`` blocks; the other methods may be called from any thread meanwhile."""

    def execute(self, run_id: str, spec: RunSpec, tell: Callable[[Happening], None]) -> Ended:
        """Decode ``spec``, telling each happening in order from this thread; raises WorkerLost, EngineFault."""
        ...

    def cancel(self, run_id: str) -> None:
        """End this run within one round, also when its ``execute`` is only about to begin."""
        ...

    def unload(self) -> None:
        """Free the loaded pair, after the run in flight."""
        ...

    def alive(self) -> bool:
        """Whether what the last run loaded can still be there."""
        ...

    def close(self) -> None:
        """End the run in flight and give everything back; nothing can be executed afterwards."""
        ...


class InlineExecutor:
    """Decodes in the calling thread: for tests and the command line. Loading a pair again is saved as in the worker."""

    def __init__(self, loader: Loader | str = LOADER, engine: Engine | str = ENGINE) -> None:
        self._runner = Runner(loader, engine)
        self._cancelled: set[str] = set()
        self._closed = threading.Event()
        self._busy = threading.Lock()

    def execute(self, run_id: str, spec: RunSpec, tell: Callable[[Happening], None]) -> Ended:
        """See :class:`Executor`."""
        with self._busy:
            if self._closed.is_set():
                raise EngineFault(STOPPED)
            try:
                return self._runner.run(
                    run_id,
                    spec,
                    tell,
                    lambda: run_id in self._cancelled or self._closed.is_set(),
                )
            finally:
                self._cancelled.discard(run_id)

    def cancel(self, run_id: str) -> None:
        """See :class:`Executor`."""
        self._cancelled.add(run_id)

    def unload(self) -> None:
        """See :class:`Executor`."""
        with self._busy:
            self._runner.unload()

    def alive(self) -> bool:
        """See :class:`Executor`."""
        return not self._closed.is_set()

    def close(self) -> None:
        """See :class:`Executor`."""
        self._closed.set()
        self.unload()
