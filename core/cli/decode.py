"""Decoding without the app: load a pair, iterate the engine, hand every record to a display and, if given, a sink."""

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
from core.records import Ended, Round, Started, Summary
from core.results.fingerprint import fingerprint
from core.results.metrics import summarise
from core.run_id import RunIds
from core.types import PairSpec, Request, RunSpec


class Display(Protocol):
    """Shows a batch's records as they come."""

    def loading(self, message: str, share: float) -> None:
        """Progress of loading, share in [0, 1]."""
        ...

    def started(self, started: Started) -> None:
        """A request's prompt is in the cache."""
        ...

    def round(self, one: Round) -> None:
        """A whole round."""
        ...

    def ended(self, ended: Ended, summary: Summary) -> None:
        """A request is over."""
        ...


def run(spec: PairSpec, requests: Sequence[Request], show: Display, sink: RunSink | None) -> int:
    """Decode ``requests`` together; the exit code: 0, 1 when one failed, 130 when interrupted.

    An interrupt ends the runs within a round as cancelled; a second one is not held back.
    """
    pair = load_pair(spec, show.loading)
    ids = RunIds()
    runs = [ids.next() for _ in requests]
    if sink:
        for run_id, request in zip(runs, requests, strict=True):
            sink.submitted(run_id, RunSpec(pair=spec, request=request), "command line", _now())
    started: dict[int, Started] = {}
    rounds: dict[int, list[Round]] = {index: [] for index in range(len(requests))}
    codes = [0]
    with _interrupts() as interrupted:
        for event in generate(requests, pair, should_stop=lambda: bool(interrupted)):
            run_id = runs[event.request]
            match event:
                case Started():
                    event = replace(event, fingerprint=fingerprint(pair, requests[event.request]))
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
                    summary = summarise(started[event.request], rounds[event.request], event)
                    show.ended(event, summary)
                    codes.append({"failed": 1, "cancelled": 130}.get(event.stop_reason, 0))
                    if sink:
                        sink.ended(run_id, event, summary, _now())
    return max(codes)


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects the first interrupt instead of raising it; the second raises as usual."""
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
