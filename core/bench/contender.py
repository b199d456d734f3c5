"""The contenders of a measurement: what each must do, and this engine as the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from core.bench.settings import Setting
from core.cache.forwards import Forwards, collected
from core.decoding.engine import generate
from core.errors import EngineFault
from core.records import Ended, Round, Started
from core.types import Request

if TYPE_CHECKING:
    from core.models.pair import Pair


@dataclass(frozen=True, slots=True)
class Workload:
    """One batch to decode: the prompts as ``requests`` and, encoded as token ids, as ``prompts``. Each decodes at most
    ``tokens`` new tokens and ends with the pair's end tokens."""

    setting: Setting
    requests: tuple[Request, ...]
    prompts: tuple[tuple[int, ...], ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of a workload: new token ids per prompt, an end token included.

    ``rounds``: target passes that emitted tokens, summed over prompts. ``decode_s``: wall seconds after the prefill,
    ``forward_s`` of them inside forward passes. None where not observed.
    """

    outputs: tuple[tuple[int, ...], ...]
    rounds: int | None = None
    decode_s: float | None = None
    forward_s: float | None = None


class Contender(Protocol):
    """A decoder that is measured: this engine or a peer."""

    @property
    def peer(self) -> str | None:
        """The peer's name in rows; None for this engine."""
        ...

    def unsupported(self, setting: Setting) -> str:
        """Why the contender can't decode this setting, or ""."""
        ...

    def ready(self, workload: Workload, watched: bool) -> AbstractContextManager[Callable[[], Answer]]:
        """Prepares the workload, untimed; calling the value of the context manager decodes it, and that call is timed.
        ``watched``: this turn is not timed, so passes may be counted at a cost."""
        ...


class Ours:
    """This engine on ``pair``. A timed call covers everything from the request to its last token, text and records
    included. Forward passes are timed in every turn on the CPU, where that costs nothing; on CUDA it needs
    synchronisation, so only in watched turns."""

    peer: str | None = None

    def __init__(self, pair: Pair, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pair = pair
        self._clock = clock

    def unsupported(self, setting: Setting) -> str:
        """Always "": every setting is supported."""
        return ""

    @contextmanager
    def ready(self, workload: Workload, watched: bool) -> Iterator[Callable[[], Answer]]:
        """Only the timing of forward passes is prepared."""
        collects = watched or self._pair.device.type != "cuda"
        with collected() if collects else nullcontext() as forwards:
            yield lambda: self._decode(workload, forwards)

    def _decode(self, workload: Workload, forwards: Forwards | None) -> Answer:
        outputs: list[list[int]] = [[] for _ in workload.requests]
        rounds, prefilled, begun = 0, 0, 0.0
        for event in generate(workload.requests, self._pair):
            match event:
                case Started():
                    prefilled += 1
                    if prefilled == len(workload.requests):
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
