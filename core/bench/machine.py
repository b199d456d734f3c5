"""The machine of a measurement: its facts (processor, device, versions) and the peak memory of a block of code."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from core.models.pair import Pair

LIBRARIES = ("torch", "transformers", "flashspec")
CPU_INFO = Path("/proc/cpuinfo")
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")

Kind = Literal["cuda_allocated", "process_rss", "process_rss_since_start"]
"""What was counted: allocations on the GPU; resident memory of the process, weights and library included; or its peak
since the process began, where the system can't reset an earlier peak."""


def machine(pair: Pair) -> dict[str, str]:
    """Facts about the machine and the loaded pair, by name, as text."""
    found = {"model": pair.target.name, "precision": pair.precision, "cpu": _cpu(), "cores": str(os.cpu_count())}
    found["threads"] = str(torch.get_num_threads())
    found["linears"] = pair.target.linears
    if pair.device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(pair.device)
    found["python"] = platform.python_version()
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


@dataclass(slots=True)
class Peak:
    """Peak memory of a ``with`` block in bytes, set at the block's end."""

    kind: Kind
    bytes: int = 0


@contextmanager
def peak(device: torch.device, clear: Path = CLEAR) -> Iterator[Peak]:
    """Measures the peak memory of the ``with`` block."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        seen = Peak("cuda_allocated")
        yield seen
        seen.bytes = torch.cuda.max_memory_allocated(device)
        return
    seen = Peak("process_rss" if _reset(clear) else "process_rss_since_start")
    yield seen
    seen.bytes = _high_water() if seen.kind == "process_rss" else _since_start()


def _reset(clear: Path) -> bool:
    """Resets the peak of resident memory, which Linux does when 5 is written to the file; False when it can't."""
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
