"""A recorder for the CPU that does what a CUDA graph does: the same operations on the same tensors, and no Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.cache.graphs import Recording


class Tape(TorchDispatchMode):
    """Operations with their arguments and results, in order; reading a value breaks it, as it breaks a capture."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "equal"):
            raise RuntimeError("operation not permitted when stream is capturing")
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def replay(self) -> None:
        """Run the operations again; each result goes where it was when recorded."""
        with torch.no_grad():
            for func, args, kwargs, result in self.calls:
                for kept, fresh in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(kept, Tensor) and kept.data_ptr() != fresh.data_ptr():
                        kept.copy_(fresh)


class TapeRecorder:
    """Records tapes; counts them and their replays."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, work: Callable[[], tuple[Tensor, ...]]) -> Recording:
        work()  # a warm-up, as on CUDA
        with Tape() as tape:
            outputs = work()
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            tape.replay()

        return Recording(outputs, replay)
