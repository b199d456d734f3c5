"""Linear layers with packed weights: laid out at load for products of a few rows, as in drafting and verification.

A float32 product of 4–16 rows with a weight of thousands of columns spends most of its time rearranging that weight
(docs/performance.md). The CPU libraries under torch can do that once, at load: MKL, or oneDNN where torch has no MKL
(MKL was the faster of the two). Whether it pays, and from how many rows on, is measured on the network itself. Results
agree with the unpacked layer's within float32 tolerance, so the target stays the same; the packed copy takes as much
memory again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional

from core.device import shortest

Layout = Literal["torch", "mkl", "onednn"]

ROWS = (1, 2, 3, 4, 5, 9, 16)
"""Rows of a pass at which layouts are compared: plain decoding, chains up to γ = 8, and a batch."""

CHECKED_ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 33, 64, 65, 512)
"""Rows at which a layout must agree with the unpacked layer before it is used: one layout serves passes of any number
of rows, prompts included."""

EXPECTED_ROWS = 64
"""Number of rows that the libraries optimise a layout for; the best of 1 … 128 when measured."""

SMALLEST = 10_000_000
"""Weights below which the network stays in the processor's caches, where packing gains nothing."""

SAMPLE = 50_000_000
"""Weights that are measured, first layers first: more than processor caches hold, as in the network."""

WORTH = 0.9
"""A layout is used where it takes at most this share of the unpacked layer's time."""

TOLERANCE = 1e-4
"""Largest deviation from the unpacked layer, relative to its largest output."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A layout and the number of rows from which on it is used; fewer rows use the unpacked weight."""

    layout: Layout
    rows: int = 1


UNPACKED = Choice("torch")


class PackedLinear(nn.Module):
    """``linear`` with a packed copy of its weight. Output [..., out], as ``linear``'s within float32 tolerance."""

    def __init__(self, linear: nn.Linear, choice: Choice) -> None:
        super().__init__()
        self.linear = linear
        self.choice = choice
        self.packed: Tensor = _pack(linear.weight.detach(), choice.layout)
        # a module's attributes are slow to look up, and a pass needs these of some hundred layers
        self._parts = linear.weight, linear.bias, self.packed, linear.in_features, choice.rows, choice.layout == "mkl"

    @property
    def weight(self) -> Tensor:
        """The unpacked weight [out, in], which tied layers and hashes refer to."""
        return self.linear.weight

    @property
    def bias(self) -> Tensor | None:
        """The bias [out], if there is one."""
        return self.linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        weight, bias, packed, width, first, mkl = self._parts
        rows = x.numel() // width
        if rows < first:
            return functional.linear(x, weight, bias)
        if mkl:
            return torch.ops.mkl._mkl_linear.default(x, packed, weight, bias, rows)
        return torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")


def pack(network: nn.Module, clock: Callable[[], float] = time.perf_counter) -> Layout:
    """Packs the float32 linear layers of ``network`` (on the CPU) if that is faster; returns their layout.

    Left unpacked: small networks, and networks whose packed copy would take more than half of the free memory.
    """
    linears = _linears(network)
    numbers = sum(linear.weight.numel() for linear in linears.values())
    layout = offered()
    if layout == "torch" or numbers < SMALLEST or 2 * 4 * numbers > psutil.virtual_memory().available:
        return "torch"
    with torch.no_grad():
        choice = fastest(_sample(list(linears.values())), layout, clock)
    if choice != UNPACKED:
        for name, linear in linears.items():
            _replace(network, name, PackedLinear(linear, choice))
    return choice.layout


@contextmanager
def original_linears(network: nn.Module) -> Iterator[None]:
    """Runs the ``with`` block with the network's own, unpacked linear layers."""
    packed = {name: module for name, module in network.named_modules() if isinstance(module, PackedLinear)}
    for name, module in packed.items():
        _replace(network, name, module.linear)
    try:
        yield
    finally:
        for name, module in packed.items():
            _replace(network, name, module)


def fastest(linears: Sequence[nn.Linear], layout: Layout, clock: Callable[[], float] = time.perf_counter) -> Choice:
    """``layout`` from the fewest rows on at which, and above which, it is always faster on ``linears``;
    :data:`UNPACKED` if there is no such number or its results disagree with the unpacked ones."""
    packed = [PackedLinear(linear, Choice(layout)) for linear in linears]
    if not all(agrees(one) for one in _one_of_each_shape(packed)):
        return UNPACKED
    shares = [theirs / own for theirs, own in zip(_times(packed, clock), _times(linears, clock), strict=True)]
    slower = [place for place, share in enumerate(shares) if share > WORTH]
    first = slower[-1] + 1 if slower else 0
    return Choice(layout, ROWS[first]) if first < len(ROWS) else UNPACKED


def offered() -> Layout:
    """The packed layout that this build of torch offers; ``torch`` (unpacked) if none."""
    if torch.backends.mkl.is_available():
        return "mkl"
    return "onednn" if torch.backends.mkldnn.is_available() else "torch"


def agrees(packed: PackedLinear) -> bool:
    """Whether ``packed`` agrees with its unpacked layer at all of :data:`CHECKED_ROWS`."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(max(CHECKED_ROWS), packed.weight.shape[1], generator=generator)
    expected = packed.linear(x)
    limit = TOLERANCE * float(expected.abs().max())
    return all(float((packed(x[:rows]) - expected[:rows]).abs().max()) <= limit for rows in CHECKED_ROWS)


def _times(linears: Sequence[nn.Linear] | Sequence[PackedLinear], clock: Callable[[], float]) -> list[float]:
    """Seconds for one pass through ``linears`` at each of ROWS."""
    times = []
    for rows in ROWS:
        inputs = {width: torch.ones(1, rows, width) for width in {linear.weight.shape[1] for linear in linears}}
        times.append(shortest(partial(_through, linears, inputs), clock))
    return times


def _through(linears: Sequence[nn.Linear] | Sequence[PackedLinear], inputs: Mapping[int, Tensor]) -> None:
    for linear in linears:
        linear(inputs[linear.weight.shape[1]])


def _one_of_each_shape(packed: Sequence[PackedLinear]) -> list[PackedLinear]:
    return list({one.weight.shape: one for one in packed}.values())


def _sample(linears: Sequence[nn.Linear]) -> list[nn.Linear]:
    """The first layers up to :data:`SAMPLE` weights, and one of each remaining shape."""
    sums = itertools.accumulate(linear.weight.numel() for linear in linears)
    first = [linear for linear, total in zip(linears, sums, strict=True) if total <= SAMPLE]
    shapes = {linear.weight.shape for linear in first}
    return first + list({one.weight.shape: one for one in linears if one.weight.shape not in shapes}.values())


def _pack(weight: Tensor, layout: Layout) -> Tensor:
    if layout == "mkl":
        return torch.ops.mkl._mkl_reorder_linear_weight(weight, EXPECTED_ROWS)
    return torch.ops.mkldnn._reorder_linear_weight(weight, EXPECTED_ROWS)


def _linears(network: nn.Module) -> dict[str, nn.Linear]:
    return {
        name: module
        for name, module in network.named_modules()
        if type(module) is nn.Linear  # a subclass may do more
        and module.weight.dtype == torch.float32
        and module.weight.device.type == "cpu"
    }


def _replace(network: nn.Module, name: str, module: Any) -> None:
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, module)
