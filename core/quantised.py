"""int8 linear layers on the CPU: another target than the float32 network they are made from, under its own name.

Weights have one scale a row (one an output), activations one scale a row (one a token), both symmetric:
y = s_x · s_w · (x̂ ŵᵀ), the integer product exact in int32 (Dettmers et al. 2022, LLM.int8(), section 2.1, vector-wise;
without its outliers in higher precision). A row's scale comes from that row alone, so verification gives a token what
decoding it alone gives. PyTorch's ``quantize_dynamic`` has one scale for the whole pass, and is deprecated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from core.errors import ModelUnavailable

PRECISION = "int8"
LARGEST = 127
"""Largest magnitude that is used of an int8, so that negating a number never leaves it."""

SMALLEST_SCALE = 1e-12
"""A row of zeros has a scale too."""


class Int8Linear(nn.Module):
    """A linear layer with int8 weights; rows that hold NaN or infinity stay so, and spoil no other row.

    ``weight``: (outputs, inputs) int8; ``scale``: (outputs,) float32; ``bias``: (outputs,) float32 or None.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        numbers, scale = quantised(linear.weight.detach())
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", numbers)
        self.register_buffer("scale", scale.squeeze(-1))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) float32 → (…, outputs) float32."""
        numbers, scale = quantised(x.reshape(-1, self.in_features))
        y = torch._int_mm(numbers, self.weight.t()).mul(self.scale).mul_(scale)
        if self.bias is not None:
            y.add_(self.bias)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Widths, as the library prints a linear layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, width) float32 → (rows, width) int8 and (rows, 1) float32 scales, so that x ≈ int8 · scale."""
    scale = x.abs().amax(-1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST_SCALE)
    return (x / scale).round_().to(torch.int8), scale


def quantise(network: Any, name: str) -> None:
    """Put int8 layers in the place of the linear layers of ``network``, a float32 causal LM on the CPU.

    The output head stays float32, as do embeddings and norms (HEAD below tells why). Raises ModelUnavailable where
    nothing would become int8, or where this machine's int8 products are not exact.
    """
    head = network.get_output_embeddings()
    found = [
        (parent, child, layer)
        for parent in network.modules()
        for child, layer in parent.named_children()
        if type(layer) is nn.Linear and layer is not head  # a subclass may be quantised already, or do more
    ]
    if not found:
        raise ModelUnavailable(
            f"{name} has no plain linear layers that could be quantised to int8 ({type(network).__name__}): choose the "
            "precision float32."
        )
    if not exact():
        raise ModelUnavailable(
            "Products of int8 numbers saturate on this CPU, so that an int8 model would decode wrong numbers: choose "
            "the precision float32."
        )
    for parent, child, layer in found:
        setattr(parent, child, Int8Linear(layer))


def exact() -> bool:
    """Whether int8 products are exact here: without VNNI some CPUs add pairs of them in 16 bits, which overflow."""
    a = torch.full((2, 256), LARGEST, dtype=torch.int8)
    b = a.repeat(16, 1)
    b[::3] *= -1
    b[1::3, ::2] *= -1
    return bool(torch.equal(torch._int_mm(a, b.t()).long(), a.long() @ b.long().t()))
