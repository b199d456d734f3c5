"""Memory: the need of a pair before it is loaded, and the free memory of a device. No torch here, so pages can use it.

A need is the weights in the chosen precision and the KV cache of one slot. The library's own code and the working space
of a pass come on top (a few hundred MiB): a need just below the free memory may still not fit.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from core.pairs.description import Description
from core.types import Device, Precision

BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 4}
"""Bytes of one number; in int8 the weights of linear layers take one byte (``Description.int8_bytes``)."""

Fit = Literal["fits", "weights", "nothing", "unknown"]

CONTROL_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Need:
    """Memory of a pair, bytes. ``weights``: of target and draft together; ``cache``: one slot of ``rows`` tokens in
    both; each None where the files don't say enough. ``loading``: the weights' peak while loading, None where loading
    never takes more than the end: int8 is made from float32, one model after the other."""

    weights: int | None
    cache: int | None
    rows: int
    loading: int | None = None

    @property
    def total(self) -> int | None:
        """Weights and cache together."""
        return None if self.weights is None else self.weights + (self.cache or 0)

    @property
    def peak(self) -> int | None:
        """Most memory of the weights, during loading and after it."""
        return None if self.weights is None else max(self.weights, self.loading or 0)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device, bytes; ``total`` and ``free`` are None when its driver doesn't report them. ``problem``: a
    sentence that says why the device can't be used, or ""."""

    kind: Literal["cpu", "cuda"]
    name: str
    total: int | None
    free: int | None
    problem: str = ""


# -- needed ---------------------------------------------------------------------------------------------------------


def resolve(precision: Precision, kind: Literal["cpu", "cuda"]) -> str:
    """The precision that is loaded: bfloat16 on CUDA and float32 on the CPU unless chosen (as core/models/load.py)."""
    if precision != "auto":
        return precision
    return "bfloat16" if kind == "cuda" else "float32"


def weight_bytes(model: Description, precision: str) -> int | None:
    """Bytes of a model's weights once loaded; None when they are not on this machine."""
    if model.packed_bytes is not None:
        return model.packed_bytes
    if precision == "int8":
        return model.int8_bytes
    return None if model.parameters is None else model.parameters * BYTES[precision]


def cache_bytes(model: Description, precision: str, rows: int) -> int | None:
    """Bytes of one slot: layers × 2 × key/value heads × head width × rows × bytes a number."""
    return None if model.cache_numbers is None else model.cache_numbers * rows * BYTES[precision]


def need(models: Sequence[Description], precision: str, rows: int) -> Need:
    """The need of a pair (its target first) with one slot of ``rows`` tokens, at most the target's context."""
    context = models[0].context if models else None
    rows = min(rows, context) if context else rows
    weights = [weight_bytes(model, precision) for model in models]
    return Need(
        weights=_sum(weights),
        cache=_sum([cache_bytes(model, precision, rows) for model in models]),
        rows=rows,
        loading=_loading(models, weights) if precision == "int8" else None,
    )


def _loading(models: Sequence[Description], weights: Sequence[int | None]) -> int | None:
    """The largest sum of a model in float32 and the models before it, which are int8 by then."""
    whole = [weight_bytes(model, "float32") for model in models]
    return max((_sum([*weights[:place], one]) or 0 for place, one in enumerate(whole)), default=None)


def published_need(bfloat16_bytes: int, precision: str) -> Need:
    """The approximate need of a pair whose files are not here, from the published size of its weights in bfloat16."""
    full = bfloat16_bytes * BYTES[precision] // 2
    # the share of linear layers is unknown without the files; int8 leaves at least a quarter of float32
    return Need(full // 4, None, 0, loading=full) if precision == "int8" else Need(weights=full, cache=None, rows=0)


def freed(free: int | None, held: Sequence[int | None]) -> int | None:
    """``free`` bytes plus those of the loaded pairs (``held``), which are unloaded first; unknown sizes count as 0."""
    return None if free is None else free + sum(part or 0 for part in held)


def fit(needed: Need, free: int | None) -> Fit:
    """Whether a need fits into ``free`` bytes: all of it, only the weights (a shorter slot would fit), or nothing."""
    if needed.total is None or needed.peak is None or free is None:
        return "unknown"
    if needed.peak > free:
        return "nothing"
    return "fits" if needed.total <= free else "weights"


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


# -- free -----------------------------------------------------------------------------------------------------------


def device_memory(asked: Device = "auto") -> DeviceMemory:
    """The memory of the device ``asked``; auto means the GPU if it is usable, else the CPU."""
    if asked == "cpu":
        return host()
    gpu = cuda()
    return host() if asked == "auto" and gpu.problem else gpu


def host() -> DeviceMemory:
    """The CPU's memory, or the container's limit where that is lower."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for limit, used in _container_limits():
        total, free = min(total, limit), min(free, max(0, limit - used))
    return DeviceMemory("cpu", f"CPU, {psutil.cpu_count() or 1} threads", total, free)


def _container_limits() -> list[tuple[int, int]]:
    """(limit, in use) in bytes of each control group (version 2) that this process is in and that has a limit."""
    try:
        line = next(one for one in Path("/proc/self/cgroup").read_text("ascii").splitlines() if one.startswith("0::"))
    except (OSError, StopIteration):
        return []
    own = CONTROL_GROUPS / line.removeprefix("0::").lstrip("/")
    found = []
    for group in (own, *own.parents):
        if not group.is_relative_to(CONTROL_GROUPS):
            break
        try:
            limit = (group / "memory.max").read_text("ascii").strip()
            if limit == "max":
                continue
            used = int((group / "memory.current").read_text("ascii"))
            stat = dict(row.split() for row in (group / "memory.stat").read_text("ascii").splitlines())
        except (OSError, ValueError):
            continue
        found.append((int(limit), used - int(stat.get("inactive_file", 0))))  # cached files give way
    return found


def cuda() -> DeviceMemory:
    """The GPU that PyTorch would use, queried through NVIDIA's management library, which takes no memory on it."""
    if not _torch_has_cuda():
        return _no_gpu("the installed PyTorch is built without CUDA: install a CUDA build, or choose the CPU.")
    try:
        import pynvml  # nvidia-ml-py
    except ImportError:
        return _no_gpu("nvidia-ml-py is not installed, so free GPU memory can't be read: install requirements.txt.")
    try:
        pynvml.nvmlInit()
        try:
            return _first_visible(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return _no_gpu(f"no NVIDIA driver answers here ({error}): choose the CPU.")


def _no_gpu(reason: str) -> DeviceMemory:
    return DeviceMemory("cuda", "no usable GPU", None, None, f"No GPU can be used: {reason}")


def _first_visible(nvml: Any) -> DeviceMemory:
    """CUDA's device 0: the first in ``CUDA_VISIBLE_DEVICES`` (a number or an identifier), else the driver's first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.split(",")[0].strip()
    if first in ("", "-1"):
        return _no_gpu("CUDA_VISIBLE_DEVICES hides every GPU: unset it, or choose the CPU.")
    handle = (nvml.nvmlDeviceGetHandleByIndex if first.isdigit() else nvml.nvmlDeviceGetHandleByUUID)(
        int(first) if first.isdigit() else first
    )
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceMemory("cuda", str(nvml.nvmlDeviceGetName(handle)), int(memory.total), int(memory.free))


def _torch_has_cuda() -> bool:
    """Whether the installed PyTorch is a CUDA build, from its version file: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        try:
            tree = ast.parse((Path(folder) / "version.py").read_text("utf-8"))
        except (OSError, SyntaxError):
            continue
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
                names = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(isinstance(name, ast.Name) and name.id == "cuda" for name in names):
                    return isinstance(statement.value.value, str)
    return False
