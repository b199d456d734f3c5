"""Decoding without the app: load a pair, run the engine, pass every record to a display and, if given, a sink."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from core.decoding.engine import generate
from core.jobs.recorder import RunSink
from core.models.load import load_pair
from core.models.pair import Pair
from core.records import Ended, Round, Started, Summary
from core.results.fingerprint import fingerprint
from core.results.metrics import summarise
from core.rules.effects import control_stops
from core.run_id import RunIds
from core.types import PairSpec, Request, RunSpec


class Display(Protocol):
    """Display of a batch's records as they are yielded."""

    def loading(self, message: str, share: float) -> None:
        """Show the progress of loading; ``share`` in [0, 1]."""
        ...

    def note(self, sentence: str) -> None:
        """Show a notice about the requests."""
        ...

    def started(self, started: Started) -> None:
        """Show that a request's prompt is in the cache."""
        ...

    def round(self, one: Round) -> None:
        """Show a whole round."""
        ...

    def ended(self, ended: Ended, summary: Summary) -> None:
        """Show the end of a request."""
        ...


def run(spec: PairSpec, requests: Sequence[Request], show: Display, sink: RunSink | None) -> int:
    """Decode ``requests`` together; return the exit code: 0, 1 if a request failed, 130 if interrupted.

    A first interrupt ends the runs as cancelled within a round; a second one takes effect at once.
    """
    pair = load_pair(spec, show.loading)
    ids = RunIds()
    for sentence in dict.fromkeys(text for one in requests for text in control_stops(one, pair.text.control_names)):
        show.note(sentence)
    session = f"command line {ids.next()}"  # seconds of two processes are not compared
    runs = [ids.next() for _ in requests]
    if sink:
        for run_id, request in zip(runs, requests, strict=True):
            sink.submitted(run_id, RunSpec(pair=spec, request=request), session, _now())
    started: dict[int, Started] = {}
    rounds: dict[int, list[Round]] = {index: [] for index in range(len(requests))}
    codes = [0]
    with _interrupts() as interrupted:
        for event in generate(requests, pair, should_stop=lambda: bool(interrupted)):
            run_id = runs[event.request]
            match event:
                case Started():
                    event = replace(event, fingerprint=fingerprint(pair, requests[event.request], event))
                    started[event.request] = event
                    show.started(event)
                    if sink:
                        sink.started(run_id, event, _now())
                case Round():
                    rounds[event.request].append(event)
                    show.round(event)
                    if sink:
                        sink.rounds(run_id, [event])
                case Ended():
                    begun = started.get(event.request) or _unread(event.request, pair, requests)
                    summary = summarise(begun, rounds[event.request], event)
                    show.ended(event, summary)
                    codes.append({"failed": 1, "cancelled": 130}.get(event.stop_reason, 0))
                    if sink:
                        sink.ended(run_id, event, summary, _now())
    return max(codes)


def _now() -> datetime:
    return datetime.now(UTC)


def _unread(index: int, pair: Pair, requests: Sequence[Request]) -> Started:
    """The start of a request that ended while its prompt was read, as when memory runs out there."""
    return Started(index, len(pair.text.encode(requests[index])), 0.0)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect the first interrupt instead of raising it; a second one is raised as usual."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
