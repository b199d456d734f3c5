"""Rotary factors that switch with length (longrope), chosen for each row by the length of that row's own request.

The library chooses one of two sets of frequencies a pass, by the pass's largest position: in a batch, one long request
would turn the short ones. Here every row gets the set that the library would take for its request alone: the long one
where the prompt or the row's own position is past the border, as in the library's ``generate``.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

SWITCHING = "longrope"
"""The library's name of rotary scaling by two sets of frequencies."""


class RowRotary(nn.Module):
    """The library's rotary module ``inner`` with a choice for each row: ``lengths`` [B, N], set before each pass, are
    the rows' lengths (:attr:`core.cache.kv.Pass.lengths`)."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.lengths: Tensor | None = None

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        """Cosines and sines [B, N, D] at ``position_ids`` [B, N], from two calls of the library's module."""
        border = self._border(*args, **options)
        if border is None or self.lengths is None:
            return self.inner(x, position_ids, *args, **options)
        long = self.lengths > border
        beyond = position_ids.new_full((len(position_ids), 1), border)  # a position that makes the module switch
        far = self.inner(x, torch.cat([position_ids, beyond], dim=1), *args, **options)
        near = self.inner(x, position_ids.masked_fill(long, 0), *args, **options)
        return tuple(torch.where(long[..., None], one[:, :-1], other) for one, other in zip(far, near, strict=True))

    def _border(self, layer_type: str | None = None) -> int | None:
        """Longest request with the short set, in tokens; None for layers whose factors don't switch."""
        if (self.inner.rope_type if layer_type is None else self.inner.rope_type[layer_type]) != SWITCHING:
            return None
        values = self.inner.config.rope_parameters
        return (values if layer_type is None else values[layer_type])["original_max_position_embeddings"]


def by_row(network: Any) -> tuple[Any, list[RowRotary]]:
    """``network`` with rotary factors by row, and the modules that want to know the rows' lengths.

    The network itself is unchanged: the result is a copy that shares all other modules, or the network where nothing
    switches.
    """
    made = []
    for path, module in network.named_modules():
        if switches_with_length(module):
            made.append(RowRotary(module))
            network = _replaced(network, path.split("."), made[-1])
    return network, made


def rereads_at(network: Any) -> int | None:
    """Position from which on the library reads a growing request anew with the long set; None if it never does.

    The library's own preparation of a step is asked (Phi-3 and PhiMoE drop the cache there; others go on with it).
    """
    border = getattr(network.config.get_text_config(decoder=True), "original_max_position_embeddings", None)
    if border is None or not any(map(switches_with_length, network.modules())):
        return None
    cache = DynamicCache()
    cache.update(torch.zeros(1, 1, border, 1), torch.zeros(1, 1, border, 1), 0)
    ids = torch.zeros(1, border + 1, dtype=torch.long)
    step = network.prepare_inputs_for_generation(ids, cache=cache, attention_mask=torch.ones_like(ids), use_cache=True)
    return border if step.get("cache", step.get("past_key_values")) is None else None


def switches_with_length(module: nn.Module) -> bool:
    """Whether ``module`` is a rotary module of the library with factors that switch."""
    kinds = getattr(module, "rope_type", None)
    return SWITCHING in (kinds.values() if isinstance(kinds, dict) else (kinds,))


def _replaced(module: Any, path: list[str], new: nn.Module) -> Any:
    """A copy of ``module`` with ``new`` at ``path``; everything off the path is shared."""
    part = copy.copy(module)
    part._modules = dict(module._modules)
    part._modules[path[0]] = new if len(path) == 1 else _replaced(module._modules[path[0]], path[1:], new)
    return part
