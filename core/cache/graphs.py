"""CUDA graphs of decoding passes: one launch instead of one for every kernel.

A graph replays the same kernels on the same addresses. So a pass is padded to a bucket of N nodes and T cache rows, its
tensors are copied into static ones, and the recording over these is replayed. Only :class:`CudaRecorder` depends on the
device. On the CPU no pass is recorded.

A recording belongs to one cache, whose rows it writes: it lives as long as the batch that decodes. Recording waits for
the device once per bucket. An architecture whose forward reads numbers back (rotary embeddings that adapt to the
length, say) can't be recorded: the log says so and the batch decodes without.
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
"""Cache rows in view come in multiples of this."""
ROWS = 256
"""Most rows B·N of a recorded pass: larger ones (prompts) keep the device busy anyway."""
GRAPHS = 16
"""Recordings kept: enough for the first draft step, later steps and verification at a few lengths in view."""

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Work whose ``replay`` reads its static inputs again and overwrites ``outputs``."""

    outputs: Tensors
    replay: Callable[[], None]


class Recorder(Protocol):
    """Turns work on static tensors into something that can be replayed."""

    def record(self, work: Callable[[], Tensors]) -> Recording:
        """Record ``work``. It may run any number of times before the first replay: doing it twice changes nothing."""
        ...


class CudaRecorder:
    """Captures work into a CUDA graph (torch.cuda.graph). Graphs share one memory pool: each one's outputs are
    overwritten by any later replay, so they are copied at once."""

    WARM_UPS = 2
    """Runs before capturing: libraries allocate and choose kernels in the first ones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Tensors]) -> Recording:
        """Warm up on a side stream, then capture there; only this thread's calls can spoil a capture."""
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
    """A recording and the static tensors that it reads."""

    inputs: Tensors
    recording: Recording


class Graphs:
    """The recordings of one cache's passes, at most ``most``: the least recently used is dropped."""

    def __init__(self, recorder: Recorder, most: int = GRAPHS) -> None:
        self.recorder = recorder
        self.most = most
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._refused = False

    def bucket(self, batch: int, nodes: int, length: int, capacity: int) -> tuple[int, int] | None:
        """(N, T) that a pass of ``batch`` slots, ``nodes`` nodes and ``length`` rows in view is padded to; None where
        it isn't recorded."""
        wide = 1 << (nodes - 1).bit_length()
        if self._refused or batch * wide > ROWS:
            return None
        return wide, min(-(-length // LENGTHS) * LENGTHS, capacity)

    def run(self, name: Hashable, inputs: Tensors, work: Callable[[Tensors], Tensors]) -> Tensors:
        """The outputs of ``work(inputs)``, from the recording under this name for inputs of these shapes.

        Whatever ``work`` uses besides its inputs must follow from ``name``. The outputs are the caller's own copies.
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
    """Recordings for a cache on ``device``; None where passes run as they are."""
    return Graphs(CudaRecorder(device)) if device.type == "cuda" else None
