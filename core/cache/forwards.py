"""Seconds spent inside networks' forwards, collected only while somebody asks.

The border lies around a pass in ``slots.py``, its attention mask included. While nobody collects it reads no clock
and makes no device wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from core.device import device_clock


@dataclass(slots=True)
class Forwards:
    """What was collected since the beginning or the last :meth:`forget`: seconds in forwards, and how many."""

    seconds: float = 0.0
    passes: int = 0

    def forget(self) -> None:
        """Begin again at nothing."""
        self.seconds, self.passes = 0.0, 0


_COLLECTING: ContextVar[Forwards | None] = ContextVar("forwards", default=None)


@contextmanager
def collected() -> Iterator[Forwards]:
    """Collects the forwards of this thread for the body; on CUDA each then waits for the device on both sides."""
    forwards = Forwards()
    token = _COLLECTING.set(forwards)
    try:
        yield forwards
    finally:
        _COLLECTING.reset(token)


def forward(device: torch.device) -> AbstractContextManager[None]:
    """The border around one call of a network on ``device``."""
    forwards = _COLLECTING.get()
    return nullcontext() if forwards is None else _timed(forwards, device)


@contextmanager
def _timed(forwards: Forwards, device: torch.device) -> Iterator[None]:
    clock = device_clock(device)
    start = clock()
    yield
    forwards.seconds += clock() - start
    forwards.passes += 1
