"""Fused attention on the CPU that takes fewer key than query heads as they are.

The library repeats the cache's rows for every query head once a mask is given, since GPU kernels need that. On the CPU
torch's fused kernel doesn't, and from some thousand tokens on the copies cost as much as the weights. So networks of
the CPU are loaded with an attention of our own, registered by name through the library's public interface: networks
that others load, and GPUs, keep the library's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FUSED = "sdpa"
"""The library's name of its fused attention."""

GROUPED = "sdpa_grouped"
"""The name under which :func:`grouped_attention` is registered."""


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of ``query`` [B, heads, N, D] to ``key`` and ``value`` [B, fewer heads, T, D], as [B, N, heads, D].

    Equal to the library's, which does the work where no mask is given or more than a mask decides.
    """
    plain = options.get("position_bias") is None and options.get("softcap") is None
    if attention_mask is None or not plain:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **options)
    attended = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


@contextmanager
def library_attention(network: Any) -> Iterator[None]:
    """The enclosed runs with the library's own fused attention: what another program would get from ``network``."""
    config = network.config.get_text_config(decoder=True)
    own = config._attn_implementation
    if own == GROUPED:
        config._attn_implementation = FUSED
    try:
        yield
    finally:
        config._attn_implementation = own
