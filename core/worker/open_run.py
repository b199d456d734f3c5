"""One run between its first turn on the device and its end: load the pair, iterate the engine, tell what happens."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

from core import faults
from core.errors import EngineFault
from core.records import Ended, Event, Round, Started, StopReason
from core.types import Request
from core.worker.pair_cache import PairCache
from core.worker.protocol import Happening, Loading, Run, RunRound, RunStarted
from core.worker.steering import Steering

LOG = logging.getLogger("speclens.engine")

Tell = Callable[[Happening], None]


class Engine(Protocol):
    """As ``engine.cycles``: per cycle on the device what became known in it, in all a Started, Rounds, and an Ended;
    asks ``should_stop`` before each round."""

    def __call__(
        self, requests: Sequence[Request], pair: Any, /, *, should_stop: Callable[[], bool]
    ) -> Generator[tuple[Event, ...], None, None]: ...


class OpenRun:
    """A run that takes turns: the first loads its pair, the second reads its prompt, each later one is a round.

    Between turns it computes nothing, and its clock stands still. ``tell`` hears each happening in order.
    """

    def __init__(self, run: Run, pairs: PairCache, engine: Callable[[], Engine], tell: Tell) -> None:
        self.run_id = run.run_id
        self.steering = Steering(paused=run.paused)
        self._run = run
        self._pairs = pairs
        self._engine = engine
        self._tell = tell
        self._so_far = _SoFar()
        self._turns = self._decode()

    @property
    def due(self) -> bool:
        """Whether it wants a turn. A paused run still loads and reads its prompt, to stand before its first round."""
        return self._so_far.started is None or not self.steering.stands

    def turn(self) -> Ended | None:
        """One turn on the device; the run's end when this was its last.

        Never raises for what happens in the run: faults end it as failed with a sentence, text so far included.
        """
        told = self._so_far.rounds
        ended = self._advance()
        if self._so_far.rounds > told:
            self.steering.stepped()
        if ended is not None:
            self._pairs.release(self.run_id)
        return ended

    def _advance(self) -> Ended | None:
        try:
            next(self._turns)
            return None
        except StopIteration as last:
            return last.value
        except _Cancelled:
            ended = self._so_far.ended("cancelled")
        except Exception as fault:
            # Loaders may wrap the exception that their progress call raised, so the question is asked again.
            if self.steering.cancelled and self._so_far.started is None:
                ended = self._so_far.ended("cancelled")
            else:
                # As text: a log record that holds the traceback would hold the run's tensors.
                LOG.error("run %s failed\n%s", self.run_id, traceback.format_exc())
                ended = self._so_far.ended("failed", faults.sentence(fault))
        # Only here, outside the handlers, does no traceback hold on to the run's tensors any more.
        faults.free_memory()
        return ended

    def _decode(self) -> Generator[None, None, Ended]:
        """Yields where others may have the device."""
        spec = self._run.spec
        self._progress("starting the engine …", None)
        engine = self._engine()
        pair = self._pairs.get(spec.pair, self.run_id, self._progress)
        self._progress("reading the prompt …", None)
        yield
        # The engine's clock starts here, in the turn in which it reads the prompt.
        with closing(engine([spec.request], pair, should_stop=lambda: self.steering.cancelled)) as cycles:
            for events in cycles:
                for event in events:
                    if isinstance(event, Ended):
                        return event
                    self._take(event, pair)
                yield
        raise EngineFault("The engine stopped without saying how the run ended: please report the run's settings.")

    def _progress(self, message: str, fraction: float | None) -> None:
        if self.steering.cancelled:
            raise _Cancelled
        self._tell(Loading(run_id=self.run_id, message=message, fraction=fraction))

    def _take(self, event: Started | Round, pair: Any) -> None:
        match event:
            case Started():
                self._so_far.started = event = _with_fingerprint(event, pair, self._run.spec.request)
                self._tell(RunStarted(run_id=self.run_id, started=event))
            case Round():
                self._so_far.add(event)
                self._tell(RunRound(run_id=self.run_id, round=event))


class _Cancelled(Exception):
    """Unwinds a load that nobody waits for any more; never leaves this module."""


class _SoFar:
    """What a run has put out until now: enough for an honest end."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.rounds = 0
        self._text: list[str] = []
        self._e2e_s = 0.0

    def add(self, round: Round) -> None:
        self.rounds += 1
        self._text.extend(round.committed_text)
        self._e2e_s = round.ended_at_s

    def ended(self, reason: StopReason, error: str | None = None) -> Ended:
        """An end on the run's own clock: seconds until its last whole round (0 before the first)."""
        return Ended(
            request=0,
            stop_reason=reason,
            text="".join(self._text),
            e2e_s=self._e2e_s,
            error=error,
        )


def _with_fingerprint(started: Started, pair: Any, request: Request) -> Started:
    if started.fingerprint is not None:
        return started
    from core.results.fingerprint import fingerprint  # imports torch

    return replace(started, fingerprint=fingerprint(pair, request))
