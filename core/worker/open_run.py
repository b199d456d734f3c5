"""One open run of the worker: it loads its pair, iterates the engine and reports what happens."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from core import faults
from core.errors import EngineFault
from core.records import Ended, Event, Round, Started, ended_early
from core.types import Request
from core.worker.protocol import Cancel, Loading, Pause, Resume, Run, RunCommand, RunEvent, Step

if TYPE_CHECKING:
    from core.worker.turns import PairCache

LOG = logging.getLogger("speclens.engine")


class Engine(Protocol):
    """The interface of ``engine.cycles``: a generator that yields, per cycle on the device, the events that became
    final in that cycle (over a run one Started, Rounds, one Ended) and calls ``should_stop`` before each round."""

    def __call__(
        self, requests: Sequence[Request], pair: Any, /, *, should_stop: Callable[[], bool]
    ) -> Generator[tuple[Event, ...], None, None]: ...


class OpenRun:
    """A run that takes turns: the first turn loads its pair, the second reads its prompt, each later one is a cycle of
    the engine. Between turns it computes nothing and its clock stands still.

    ``apply`` may be called from any thread; all else belongs to the device's thread. ``report`` receives the run's
    reports in order.
    """

    def __init__(
        self,
        run: Run,
        pairs: PairCache,
        engine: Callable[[], Engine],
        report: Callable[[Loading | RunEvent], None],
    ) -> None:
        self.run_id = run.run_id
        self._run = run
        self._pairs = pairs
        self._engine = engine
        self._report = report
        self._lock = threading.Lock()  # guards the next three
        self._cancelled = False
        self._paused = run.paused
        self._steps = 0
        self._started: Started | None = None
        self._rounds: list[Round] = []  # without nodes and positions: text and times are enough for an early end
        self._turns = self._decode()

    def apply(self, command: RunCommand) -> None:
        """Cancel, pause, resume or step this run, as the protocol describes."""
        with self._lock:
            match command:
                case Cancel():
                    self._cancelled = True
                case Pause():
                    self._paused, self._steps = True, 0
                case Resume():
                    self._paused, self._steps = False, 0
                case Step():
                    self._steps += self._paused

    @property
    def cancelled(self) -> bool:
        """Whether a Cancel has arrived."""
        return self._cancelled

    @property
    def due(self) -> bool:
        """Whether the run can use a turn. A paused run still loads and reads its prompt."""
        with self._lock:
            return self._started is None or self._cancelled or not self._paused or self._steps > 0

    def turn(self) -> bool:
        """Take one turn on the device; False when it was the last one and Ended has been reported.

        Never raises for what happens in the run: a fault ends it as failed with a sentence and its text so far.
        """
        before = len(self._rounds)
        ended = self._advance()
        if len(self._rounds) > before:  # a cycle may hold its round back: the step then takes another turn
            with self._lock:
                self._steps -= self._steps > 0
        if ended is None:
            return True
        self._pairs.release(self.run_id)
        self._report(RunEvent(run_id=self.run_id, event=ended))
        return False

    def _advance(self) -> Ended | None:
        try:
            next(self._turns)
            return None
        except StopIteration as last:
            return last.value
        except _Cancelled:
            ended = ended_early(self._rounds, "cancelled")
        except Exception as fault:
            # A loader may wrap the _Cancelled that its progress callback raised, so the flag is read again.
            if self.cancelled and self._started is None:
                ended = ended_early(self._rounds, "cancelled")
            else:
                # As text: a log record that holds the traceback would hold the run's tensors.
                LOG.error("run %s failed\n%s", self.run_id, traceback.format_exc())
                ended = ended_early(self._rounds, "failed", faults.sentence(fault))
        # Only here, outside the handlers, has the traceback released the run's tensors.
        faults.free_memory()
        return ended

    def _decode(self) -> Generator[None, None, Ended]:
        """Yields wherever another run may have the device."""
        spec = self._run.spec
        self._progress("starting the engine …", None)
        engine = self._engine()
        pair = self._pairs.get(spec.pair, self.run_id, self._progress)
        self._progress("reading the prompt …", None)
        yield
        # The engine's clock starts here, in the turn in which it reads the prompt.
        with closing(engine([spec.request], pair, should_stop=lambda: self.cancelled)) as cycles:
            for events in cycles:
                for event in events:
                    match event:
                        case Started():
                            event = self._started = _with_fingerprint(event, pair, spec.request)
                        case Round():
                            self._rounds.append(replace(event, nodes=(), positions=()))
                        case Ended():
                            return event
                    self._report(RunEvent(run_id=self.run_id, event=event))
                yield
        raise EngineFault("The engine stopped without saying how the run ended: please report the run's settings.")

    def _progress(self, message: str, fraction: float | None) -> None:
        if self.cancelled:
            raise _Cancelled
        self._report(Loading(run_id=self.run_id, message=message, fraction=fraction))


class _Cancelled(Exception):
    """Unwinds a load after a cancel; never leaves this module."""


def _with_fingerprint(started: Started, pair: Any, request: Request) -> Started:
    if started.fingerprint is not None:
        return started
    from core.results.fingerprint import fingerprint  # imports torch

    return replace(started, fingerprint=fingerprint(pair, request, started))
