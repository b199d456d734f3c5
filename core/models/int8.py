"""int8 linear layers on the CPU: a target of its own, other than the float32 network that it is made from.

Weights are int8 with one scale a row (an output). Activations have one scale a row too (a token) and are written as
three int8 digits, x ≈ s·(d₁ + d₂/254 + d₃/254²), so y = s_x·s_w·Σ 254⁻ⁱ (dᵢ ŵᵀ) with each product exact in int32
(vector-wise scales as in Dettmers et al. 2022, LLM.int8(), section 2.1; where they keep outliers, digits keep the
precision that a single int8 loses). With a single digit, decoding a token alone and verifying it among others would
differ in a last bit, which flips a rounding, and layer by layer such flips grow into other logits (2 apart on the
embedded model, one argmax in eight): verification would not be lossless. With three digits the two agree as in float32.
Only the rounding of the weights makes this another model. PyTorch's ``quantize_dynamic`` has one scale for a whole pass
and is deprecated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from core.errors import ModelUnavailable

LARGEST = 127
"""Largest magnitude of a digit, symmetric in sign."""

BASE = 2 * LARGEST
"""Ratio of the steps of successive digits: the next digit covers the remainder of at most half a step."""

DIGITS = 3
"""Digits of an activation: 24 bits, the precision of a float32."""

SMALLEST_SCALE = 1e-12
"""Scale of a row of zeros."""


class Int8Linear(nn.Module):
    """A linear layer with int8 weights. A row's result depends on no other row; NaN and infinity stay in their row.

    ``weight``: (outputs, inputs) int8; ``scale``: (outputs,) float32; ``bias``: (outputs,) float32 or None.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = _scale(weight)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", (weight / scale).round_().to(torch.int8))
        self.register_buffer("scale", scale.squeeze(-1))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) float32 → (…, outputs) float32."""
        rows = x.reshape(-1, self.in_features)
        scale = _scale(rows)
        # all digits in one product: for few rows, reading the weights from memory takes most of the time
        products = _product(_digits(rows / scale), self.weight.t()).float().view(DIGITS, len(rows), -1)
        y = products[DIGITS - 1]
        for digit in range(DIGITS - 2, -1, -1):
            y = y.mul_(1 / BASE).add_(products[digit])  # not fused: a row's rounding must not depend on its position
        y = y.mul_(self.scale).mul_(scale)
        if self.bias is not None:
            y.add_(self.bias)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """The layer's widths, in the format of ``nn.Linear``."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _product(a: Tensor, b: Tensor) -> Tensor:
    """(n, k) int8 · (k, m) int8 → (n, m) int32, by oneDNN where it supports this CPU."""
    return torch.ops.aten._int_mm.default(a, b)


def _scale(rows: Tensor) -> Tensor:
    """(rows, width) → (rows, 1): the size of a step of the first digit."""
    return rows.abs().amax(-1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST_SCALE)


def _digits(rest: Tensor) -> Tensor:
    """(rows, width) float32 in [−127, 127] → (DIGITS · rows, width) int8, first digits first. Overwrites ``rest``."""
    found = []
    for _ in range(DIGITS):
        digit = rest.round()
        found.append(digit)
        rest = rest.sub_(digit).mul_(BASE)
    return torch.cat(found).to(torch.int8)


def quantise(network: Any, name: str) -> None:
    """Replaces all linear layers of ``network`` (a float32 causal LM on the CPU) by int8 layers, its output head too. A
    head tied to the embedding becomes a separate int8 layer; the embedding stays float32, as norms do.

    Raises ModelUnavailable when there is nothing but the head to quantise, or int8 products are not exact here.
    """
    head = network.get_output_embeddings()
    found = [
        (parent, child, layer)
        for parent in network.modules()
        for child, layer in parent.named_children()
        if type(layer) is nn.Linear  # a subclass may be quantised already, or do more
    ]
    if all(layer is head for _, _, layer in found):
        raise ModelUnavailable(
            f"The layers of {name} ({type(network).__name__}) have no plain linear layers to quantise to int8: choose "
            "another precision."
        )
    if not exact():
        raise ModelUnavailable(
            "This CPU adds products of int8 numbers in 16 bits, where they overflow, so an int8 model would decode "
            "wrong numbers: choose another precision."
        )
    for parent, child, layer in found:
        setattr(parent, child, Int8Linear(layer))


def exact() -> bool:
    """Whether products of int8 matrices are exact here; oneDNN's are not on x86 without VNNI."""
    a = torch.full((2, 256), LARGEST, dtype=torch.int8)
    b = a.repeat(16, 1)
    b[::3] *= -1
    b[1::3, ::2] *= -1
    return bool(torch.equal(_product(a, b.t()).long(), a.long() @ b.long().t()))
