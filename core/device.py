"""Numbers on their way from the host to the device, without the host waiting for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sent(host: Tensor, device: torch.device) -> Tensor:
    """``host`` (a CPU tensor of any shape) on ``device``; itself where that is the CPU.

    A copy to CUDA from pageable memory makes the host wait until the device has caught up; from pinned memory it is one
    more piece of queued work. The allocator of pinned memory keeps the source until the copy has run.
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def longs(values: Sequence[int], device: torch.device) -> Tensor:
    """``values`` as int64 [n] on ``device``."""
    return sent(torch.tensor(values, dtype=torch.long), device)
