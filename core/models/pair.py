"""A loaded pair: what the engine decodes with. No library is imported for these two records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from core.models.packing import Layout
    from core.models.text import TextCodec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One model ready to score: evaluation mode, no gradients.

    ``context``: most positions it was made for, tokens; ``vocab``: rows of its output head; ``content_hash``: SHA-256
    over configuration and weights; ``linears``: layout of its linear layers (``core/models/packing.py``);
    ``rereads_at``: position from which a growing request is read anew (``core/cache/rotary.py``), None for most.
    """

    name: str
    content_hash: str
    network: PreTrainedModel
    context: int
    vocab: int
    linears: Layout = "torch"
    rereads_at: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and, if the pair has one, its draft, on one device in one precision.

    ``vocab``: the ids that can be emitted are 0 … vocab−1; wider heads are padded, and the engine crops them.
    """

    name: str
    target: LoadedModel
    draft: LoadedModel | None
    text: TextCodec
    device: torch.device
    dtype: torch.dtype
    precision: str
    vocab: int
