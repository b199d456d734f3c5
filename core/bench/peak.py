"""Peak memory of what runs between two points."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")

Kind = Literal["cuda_allocated", "process_rss", "process_rss_since_start"]
"""What was counted: allocations on the GPU; resident memory of the process, weights and library included; or that since
the process began, where the system can't forget an earlier peak."""


@dataclass(slots=True)
class Peak:
    """Bytes, once the body is over."""

    kind: Kind
    bytes: int = 0


@contextmanager
def peak(device: torch.device, clear: Path = CLEAR) -> Iterator[Peak]:
    """Watches the body."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        seen = Peak("cuda_allocated")
        yield seen
        seen.bytes = torch.cuda.max_memory_allocated(device)
        return
    seen = Peak("process_rss" if _forgotten(clear) else "process_rss_since_start")
    yield seen
    seen.bytes = _high_water() if seen.kind == "process_rss" else _since_start()


def _forgotten(clear: Path) -> bool:
    """Linux forgets the high-water mark of resident memory when 5 is written here."""
    try:
        clear.write_text("5")
    except OSError:
        return False
    return True


def _high_water() -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return _since_start()


def _since_start() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
