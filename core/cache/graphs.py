"""CUDA graphs of decoding passes: one launch per pass instead of one per kernel.

A graph replays the same kernels on the same addresses, so a pass is padded to a bucket of N nodes and T cache rows, its
tensors are copied into static ones, and the recording that uses these is replayed. Only :class:`CudaRecorder` depends
on the device. On the CPU no pass is recorded.

A recording belongs to the cache whose rows it writes, and lives as long as the batch being decoded. Recording waits for
the device once per bucket. An architecture whose forward reads numbers back to the host (rotary embeddings that adapt
to the length, say) can't be recorded: this is logged, and the batch decodes without graphs.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from core.faults import is_out_of_memory, sentence

LOG = logging.getLogger("speclens.engine")

LENGTHS = 128
"""Cache rows in view are rounded up to a multiple of this."""
ROWS = 256
"""Most rows B·N of a recorded pass: larger passes (prompts) keep the device busy anyway."""
GRAPHS = 16
"""Most recordings kept: enough for the first draft step, later steps and verification at a few lengths in view."""

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded work: ``replay`` reads its static inputs again and overwrites ``outputs``."""

    outputs: Tensors
    replay: Callable[[], None]


class Recorder(Protocol):
    """Recorder of work on static tensors, for replay."""

    def record(self, work: Callable[[], Tensors]) -> Recording:
        """Record ``work``, which must be idempotent: it may run any number of times before the first replay."""
        ...


class CudaRecorder:
    """Recorder that captures work into CUDA graphs (torch.cuda.graph). All graphs share one memory pool: any later
    replay overwrites a graph's outputs, so these are copied at once."""

    WARM_UPS = 2
    """Runs before capturing: libraries allocate memory and choose kernels in their first runs."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Tensors]) -> Recording:
        """Warm up on a side stream, then capture there; only calls of this thread can invalidate the capture."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for _ in range(self.WARM_UPS):
                work()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            outputs = work()
        return Recording(outputs, graph.replay)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Recording and the static tensors that it reads."""

    inputs: Tensors
    recording: Recording


class Graphs:
    """Recordings of one cache's passes, at most ``most``; the least recently used is dropped."""

    def __init__(self, recorder: Recorder, most: int = GRAPHS) -> None:
        self.recorder = recorder
        self.most = most
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._refused = False

    def bucket(self, batch: int, nodes: int, length: int, capacity: int) -> tuple[int, int] | None:
        """(N, T) to which a pass of ``batch`` slots, ``nodes`` nodes and ``length`` rows in view is padded; None for a
        pass that isn't recorded."""
        wide = 1 << (nodes - 1).bit_length()
        if self._refused or batch * wide > ROWS:
            return None
        return wide, min(-(-length // LENGTHS) * LENGTHS, capacity)

    def run(self, name: Hashable, inputs: Tensors, work: Callable[[Tensors], Tensors]) -> Tensors:
        """Outputs of ``work(inputs)``, from the recording with this name and these input shapes.

        Whatever ``work`` uses besides its inputs must be determined by ``name``. The outputs are fresh copies.
        """
        key = (name, *((tuple(one.shape), one.dtype) for one in inputs))
        kept = self._kept.get(key) or self._recorded(inputs, work)
        if kept is None:
            return work(inputs)
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        for static, one in zip(kept.inputs, inputs, strict=True):
            static.copy_(one)
        kept.recording.replay()
        return tuple(one.clone() for one in kept.recording.outputs)

    def _recorded(self, inputs: Tensors, work: Callable[[Tensors], Tensors]) -> _Kept | None:
        static = tuple(one.clone(memory_format=torch.contiguous_format) for one in inputs)
        try:
            return _Kept(static, self.recorder.record(lambda: work(static)))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            LOG.warning("Passes of this model can't be recorded and are launched step by step: %s", sentence(error))
            self._refused = True
            return None


def graphs_on(device: torch.device) -> Graphs | None:
    """Recordings for a cache on ``device``; None on a device whose passes are not recorded."""
    return Graphs(CudaRecorder(device)) if device.type == "cuda" else None
