"""The device: copies to it without the host waiting, clocks that wait for its work, and its peak memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


def sent(host: Tensor, device: torch.device) -> Tensor:
    """``host`` (a CPU tensor of any shape) on ``device``; ``host`` itself if that is the CPU.

    A copy to CUDA from pageable memory makes the host wait until the device has caught up; a copy from pinned memory is
    queued like other work. The allocator of pinned memory keeps the source until the copy has run.
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def longs(values: Sequence[int], device: torch.device) -> Tensor:
    """``values`` as int64 [n] on ``device``."""
    return sent(torch.tensor(values, dtype=torch.long), device)


def device_clock(device: torch.device) -> Callable[[], float]:
    """Clock of monotonic seconds, read after the device has finished its queued work."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def shortest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds that ``work`` takes, the shortest of four laps: other processes can only make a lap longer."""
    laps = []
    for _ in range(4):
        start = clock()
        work()
        laps.append(clock() - start)
    return min(laps)


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Largest memory in use so far, in ``bytes``, and the kind of memory counted."""

    bytes: int
    kind: Literal["cuda_allocated", "process_rss"]


def peak_memory(device: torch.device) -> PeakMemory:
    """Peak memory of tensors on a CUDA ``device`` since :func:`reset_peak_memory`; on the CPU, the peak resident memory
    of this process since its start."""
    if device.type == "cuda":
        return PeakMemory(torch.cuda.max_memory_allocated(device), "cuda_allocated")
    return PeakMemory(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "process_rss")  # Linux counts in KiB


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak on a CUDA ``device``; do nothing on the CPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
