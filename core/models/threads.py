"""How many threads compute on the CPU: measured once per process on the first network that is loaded.

More threads than physical cores mostly wait for one another, and half of them can be as fast where memory is the limit;
which number wins depends on the machine, so it is tried (article, "measure on your own hardware").
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
"""Fewer threads than torch's own choice must need at most this share of its time."""

MANY = 8
"""Physical cores that can ask for more than memory delivers. Of fewer all are used: a trial on a machine that is busy
for a moment would leave some idle for good."""

_settled = False


def settle(network: Any) -> int:
    """Set the number of threads that computes ``network`` fastest, once per process; the number in use now.

    Whoever starts the process may have chosen with OMP_NUM_THREADS or MKL_NUM_THREADS: then nothing is tried.
    """
    global _settled
    numbers = candidates()
    if not _settled and len(numbers) > 1 and not any(name in os.environ for name in CHOSEN_BY):
        torch.set_num_threads(fastest(numbers, lambda: _passes(network)))
    _settled = True
    return torch.get_num_threads()


def candidates() -> list[int]:
    """torch's own number first, then the physical cores and, where there are many, half of them."""
    own = torch.get_num_threads()
    cores = min(own, psutil.cpu_count(logical=False) or own)
    return list(dict.fromkeys([own, cores, cores // 2 if cores >= MANY else cores]))


def fastest(numbers: Sequence[int], work: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> int:
    """The one of ``numbers`` with which ``work`` takes least; the first unless another is clearly faster."""
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
