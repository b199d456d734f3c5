"""Seconds spent inside networks' forwards, counted only inside :func:`collected`.

``slots.py`` marks each pass, its attention mask included. Outside :func:`collected` the marks read no clock and never
wait for the device.
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
    """Number of forwards and the seconds spent in them, since the start or the last :meth:`forget`."""

    seconds: float = 0.0
    passes: int = 0

    def forget(self) -> None:
        """Reset both to zero."""
        self.seconds, self.passes = 0.0, 0


_COLLECTING: ContextVar[Forwards | None] = ContextVar("forwards", default=None)


@contextmanager
def collected() -> Iterator[Forwards]:
    """Count this thread's forwards in the body; on CUDA, each forward then waits for the device before and after."""
    forwards = Forwards()
    token = _COLLECTING.set(forwards)
    try:
        yield forwards
    finally:
        _COLLECTING.reset(token)


def forward(device: torch.device) -> AbstractContextManager[None]:
    """Context that marks one call of a network on ``device``."""
    forwards = _COLLECTING.get()
    return nullcontext() if forwards is None else _timed(forwards, device)


@contextmanager
def _timed(forwards: Forwards, device: torch.device) -> Iterator[None]:
    clock = device_clock(device)
    start = clock()
    yield
    forwards.seconds += clock() - start
    forwards.passes += 1
