"""A causal model over cache slots: prefill, extend the scratch region, keep a path, close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.cache import forwards
from core.cache.graphs import graphs_on
from core.cache.kv import Pass, SlotCache
from core.cache.rotary import by_row
from core.cache.rows import Extension, ScratchRows
from core.cache.target import Candidates, Scores
from core.device import longs, sent
from core.records import ROOT

PREFILL_CHUNK = 512
"""Prompt tokens per prefill pass, which limits the size of the [chunk, context] mask and of the activations."""


class SlotModel:
    """A transformers causal LM over a :class:`SlotCache`. Logits cover ``vocab`` ids: a wider head is cropped, a
    narrower one padded with −inf (an id that a draft can't emit has probability 0)."""

    def __init__(self, network: Any, vocab: int, slots: int, capacity: int) -> None:
        self.network, self.rotaries = by_row(network)
        self.vocab = vocab
        self.device: torch.device = network.device
        self.chunk = PREFILL_CHUNK
        self.graphs = graphs_on(self.device)
        spare = 0 if self.graphs is None else 1
        layers = network.config.get_text_config(decoder=True).num_hidden_layers
        self.cache = SlotCache(layers, slots, capacity, self.device, spare)

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill and commit ``tokens``, in chunks."""
        self.cache.open(slot, len(tokens) + 1)
        for start in range(0, len(tokens), self.chunk):
            chunk = tokens[start : start + self.chunk]
            rows = self.cache.append(slot, range(-1, len(chunk) - 1))
            self.run(self.network, [ScratchRows(slot, rows)], [list(chunk)], logits_to_keep=1)
            self.cache.keep(slot, rows)

    def extend(self, batch: Sequence[Extension]) -> list[Tensor]:
        """Append rows and compute their logits [n, V] per slot."""
        return self.run(self.network, self.append(batch), [one.tokens for one in batch])

    def append(self, batch: Sequence[Extension]) -> list[ScratchRows]:
        """Allocate scratch rows for new nodes."""
        return [ScratchRows(one.slot, self.cache.append(one.slot, one.parents)) for one in batch]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the scratch rows of ``path``."""
        self.cache.keep(slot, path)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self.cache.open(slot)

    def run(
        self,
        network: Any,
        wanted: Sequence[ScratchRows],
        tokens: Sequence[Sequence[int] | Tensor] | None,
        embeddings: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> list[Tensor]:
        """Forward the ``wanted`` scratch rows through ``network`` (this model, or some of its layers on the same
        cache) from token ids or from ``embeddings`` [B, N, hidden]; return logits [n, V] per slot."""
        return self.logits(self.outputs(network, wanted, tokens, embeddings, logits_to_keep)[0], wanted)

    def logits(self, computed: Tensor, wanted: Sequence[ScratchRows]) -> list[Tensor]:
        """Logits [B, N, head width] of a pass as [n, V] per slot."""
        computed = over_vocabulary(computed, self.vocab)
        return [computed[b, : len(one.rows)] for b, one in enumerate(wanted)]

    def outputs(
        self,
        network: Any,
        wanted: Sequence[ScratchRows],
        tokens: Sequence[Sequence[int] | Tensor] | None,
        embeddings: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> tuple[Tensor, ...]:
        """Outputs of :meth:`forward` for ``wanted``, padding included.

        On CUDA, passes that keep all logits (drafting and verification, not prompts) run from a recorded graph.
        """
        padded = None
        if self.graphs is not None and not logits_to_keep:
            padded = self.graphs.bucket(len(wanted), *self.cache.extent(wanted), self.cache.capacity)
        now = self.cache.plan(wanted, padded)
        width = now.positions.shape[1]
        ids = None if tokens is None else padded_ids(tokens, width, self.device)
        if embeddings is not None:
            embeddings = functional.pad(embeddings, (0, 0, 0, width - embeddings.shape[1]))
        if self.graphs is None or padded is None:
            with forwards.forward(self.device):
                return self.forward(network, now, ids, embeddings, logits_to_keep)

        def work(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            *tensors, given = inputs
            return self.forward(network, now.over(tensors), *((given, None) if ids is not None else (None, given)), 0)

        given = ids if embeddings is None else embeddings
        assert given is not None
        name = (network, tuple(one.slot for one in wanted), embeddings is None)
        with forwards.forward(self.device):
            return self.graphs.run(name, (*now.tensors, given), work)

    def forward(
        self, network: Any, now: Pass, ids: Tensor | None, embeddings: Tensor | None, logits_to_keep: int
    ) -> tuple[Tensor, ...]:
        """Run the device's part of a pass and nothing else; the first output is the logits [B, N, head width]."""
        for rotary in self.rotaries:
            rotary.lengths = now.lengths
        with torch.no_grad():
            return (
                network(
                    input_ids=ids,
                    inputs_embeds=embeddings,
                    attention_mask=attention_masks(network, now),
                    position_ids=now.positions,
                    cache=self.cache.during(now),
                    use_cache=True,
                    logits_to_keep=logits_to_keep,
                ).logits,
            )


class SlotTarget(SlotModel):
    """A whole model as the engine's target: scratch row 0 is the root, row i + 1 candidate i."""

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """Score in one pass, with no row deferred."""
        extensions = [
            Extension(one.slot, (one.root, *one.tokens), (ROOT, *(parent + 1 for parent in one.parents)))
            for one in batch
        ]
        return [Scores(rows) for rows in self.extend(extensions)]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates."""
        self.cache.keep(slot, [0, *(node + 1 for node in path)])


def padded_ids(tokens: Sequence[Sequence[int] | Tensor], width: int, device: torch.device) -> Tensor:
    """Token ids [B, width] of rows on the host or already on the device, padded with zeros."""
    host: list[list[int]] = []
    for row in tokens:
        if isinstance(row, Tensor):
            return torch.stack([_on_device(one, width, device) for one in tokens])
        host.append([*row, *[0] * (width - len(row))])
    return sent(torch.tensor(host), device)


def _on_device(row: Sequence[int] | Tensor, width: int, device: torch.device) -> Tensor:
    ids = row if isinstance(row, Tensor) else longs(list(row), device)
    return ids if len(ids) == width else functional.pad(ids, (0, width - len(ids)))


def attention_masks(network: Any, now: Pass) -> Tensor | dict[str, Tensor]:
    """The pass's mask, or one per kind of attention for models that mix kinds (full and sliding window).

    The mask is additive, 0 or the most negative number, which fused and eager attention both accept; every layer would
    convert a boolean mask to this form again.
    """
    config = network.config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    hidden = torch.finfo(network.dtype).min

    def mask(width: int | None) -> Tensor:
        visible = now.mask(width)
        return torch.zeros(visible.shape, dtype=network.dtype, device=visible.device).masked_fill_(~visible, hidden)

    if len(kinds) > 1:
        return {kind: mask(window if kind == "sliding_attention" else None) for kind in kinds}
    return mask(None if kinds == ["full_attention"] else window)


def over_vocabulary(logits: Tensor, vocab: int) -> Tensor:
    """Crop logits [..., head width] to [..., vocab], or pad them with −inf."""
    missing = vocab - logits.shape[-1]
    return functional.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[..., :vocab]
