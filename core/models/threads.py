"""The number of threads that compute on the CPU: measured once per process, on the first network that is loaded.

More threads than physical cores mostly wait for one another, and half the cores can be as fast where memory is the
limit. The best number depends on the machine, so it is measured (article, "measure on your own hardware").
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch

from core.device import shortest

CHOSEN_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

ROWS = (1, 5)
"""Tokens of the passes that are timed: plain decoding and a short verification."""

WORTH = 0.9
"""Another number of threads replaces torch's own if it takes at most this share of its time."""

MANY = 8
"""Physical cores from which on memory can be the limit, so that half of them are tried. Fewer are all used: a trial
while the machine is busy for a moment would leave some idle for good."""

_settled = False


def settle(network: Any, clock: Callable[[], float] = time.perf_counter) -> int:
    """Sets the number of threads that computes ``network`` fastest, once per process; returns the number in use.

    Nothing is measured where OMP_NUM_THREADS or MKL_NUM_THREADS is set: whoever started the process has chosen.
    """
    global _settled
    numbers = candidates()
    if not _settled and len(numbers) > 1 and not any(name in os.environ for name in CHOSEN_BY):
        torch.set_num_threads(fastest(numbers, lambda: _passes(network), clock))
    _settled = True
    return torch.get_num_threads()


def candidates() -> list[int]:
    """The numbers to measure: torch's own first, then the physical cores and, where there are many, half of them."""
    own = torch.get_num_threads()
    cores = min(own, psutil.cpu_count(logical=False) or own)
    return list(dict.fromkeys([own, cores, cores // 2 if cores >= MANY else cores]))


def fastest(numbers: Sequence[int], work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> int:
    """The one of ``numbers`` with which ``work`` takes least time; the first unless another is clearly faster."""
    before = torch.get_num_threads()
    took: dict[int, float] = {}
    for number in numbers:
        torch.set_num_threads(number)
        took[number] = shortest(work, clock)
    torch.set_num_threads(before)
    best = min(took, key=lambda number: took[number])
    return best if took[best] <= WORTH * took[numbers[0]] else numbers[0]


def _passes(network: Any) -> None:
    with torch.no_grad():
        for rows in ROWS:
            network(input_ids=torch.zeros(1, rows, dtype=torch.long), use_cache=False, logits_to_keep=rows)
