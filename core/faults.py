"""Exceptions of a run as sentences, and freeing memory after one."""

from __future__ import annotations

import gc
import sys
from math import inf
from typing import TYPE_CHECKING

from core.errors import SpecLensError
from core.records import ROOT

if TYPE_CHECKING:
    from torch import Tensor


def sentence(fault: Exception) -> str:
    """The exception as a sentence: the message of our own errors, for others a sentence with type and first line."""
    if isinstance(fault, SpecLensError):
        return str(fault)
    first_line = (str(fault).strip().splitlines() or ["no message"])[0]
    if is_out_of_memory(fault):
        return (
            f"The device ran out of memory ({first_line}); the run's caches were freed. Lower max new tokens, the "
            "length of the prompt or the number of drafted candidates, or choose a smaller pair or precision."
        )
    return (
        f"The run broke on something unexpected ({type(fault).__name__}: {first_line}). Later runs are not affected; "
        "the engine's log holds the details for a report."
    )


def is_broken(logits: Tensor) -> Tensor:
    """Bool [] on the row's device: whether raw logits [V] hold NaN or +∞ (−∞ marks an id that can't be emitted)."""
    return ~(logits.amax() < inf)  # amax is NaN if any logit is


def logits_fault(logits: Tensor, model: str, node: int) -> str | None:
    """The error sentence if raw logits [V] are broken, else None. The host waits for the row."""
    return fault_after(model, node) if bool(is_broken(logits)) else None


def fault_after(model: str, node: int) -> str:
    """The error sentence for broken logits after ``node``; ``model`` is "target" or "draft"."""
    return f"the {model}'s logits after {_named(node)} are NaN or infinite: try float32, or other weights"


def empty_after(node: int) -> str:
    """The error sentence where all of the target's raw logits after ``node`` are −∞."""
    return f"the target's logits after {_named(node)} are −∞ for every token: try float32, or other weights"


def excluded_after(node: int) -> str:
    """The error sentence where the target's logits after ``node`` are sound, but processing leaves no token."""
    return (
        f"the sampling settings leave no token that the target can emit after {_named(node)}: lower min new tokens, or "
        "take a more moderate temperature or repetition penalty"
    )


def _named(node: int) -> str:
    return "the root" if node == ROOT else f"node {node}"


def is_out_of_memory(fault: Exception) -> bool:
    """True for a failed allocation on the device or the host. Does not import torch."""
    torch = sys.modules.get("torch")
    return (
        isinstance(fault, MemoryError)
        or (torch is not None and isinstance(fault, torch.OutOfMemoryError))
        # torch's CPU allocator raises a plain RuntimeError
        or (isinstance(fault, RuntimeError) and "can't allocate memory" in str(fault))
    )


def free_memory() -> None:
    """Collect garbage and release cached device memory."""
    gc.collect()
    torch = sys.modules.get("torch")  # without torch there is no device memory
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
