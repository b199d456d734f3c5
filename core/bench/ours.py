"""This engine as a contender: time covers everything from the request to its last token, text and records included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from core.bench.contender import Answer, Job
from core.bench.settings import Setting
from core.cache.forwards import Forwards, collected
from core.decoding.engine import generate
from core.errors import EngineFault
from core.records import Ended, Round, Started

if TYPE_CHECKING:
    from core.models.load import Pair


class Ours:
    """The engine on ``pair``. Forwards are timed in every turn on the CPU, where that costs nothing, and on CUDA only
    in watched turns, as the device must be waited for."""

    peer: str | None = None

    def __init__(self, pair: Pair, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pair = pair
        self._clock = clock

    def unsupported(self, setting: Setting) -> str:
        """Nothing is."""
        return ""

    @contextmanager
    def ready(self, job: Job, watched: bool) -> Iterator[Callable[[], Answer]]:
        """Nothing to prepare."""
        collects = watched or self._pair.device.type != "cuda"
        with collected() if collects else nullcontext() as forwards:
            yield lambda: self._decode(job, forwards)

    def _decode(self, job: Job, forwards: Forwards | None) -> Answer:
        outputs: list[list[int]] = [[] for _ in job.requests]
        rounds, prefilled, begun = 0, 0, 0.0
        for event in generate(job.requests, self._pair):
            match event:
                case Started():
                    prefilled += 1
                    if prefilled == len(job.requests):
                        begun = self._clock()
                        if forwards is not None:
                            forwards.forget()
                case Round():
                    outputs[event.request] += event.committed
                    rounds += 1
                case Ended(error=str() as error):
                    raise EngineFault(error)
        return Answer(
            outputs=tuple(map(tuple, outputs)),
            rounds=rounds,
            decode_s=self._clock() - begun,
            forward_s=None if forwards is None else forwards.seconds,
        )
