"""Where the figures come from: processor, threads, device, precision and versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from core.models.load import Pair

LIBRARIES = ("torch", "transformers", "flashspec")
CPU_INFO = Path("/proc/cpuinfo")


def machine(pair: Pair) -> dict[str, str]:
    """Facts by name, as text."""
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
