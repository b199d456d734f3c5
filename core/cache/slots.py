"""A causal model decoding slots: prefill, extend the scratch region, keep a path, close."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.cache import forwards
from core.cache.graphs import graphs_on
from core.cache.kv import Pass, SlotCache
from core.cache.target import Candidates, Scores
from core.device import longs, sent
from core.records import ROOT

PREFILL_CHUNK = 512
"""Prompt tokens per prefill pass: bounds the [chunk, context] mask and the activations."""

GROUPED = "TRANSFORMERS_SDPA_FORCE_GQA"
"""The library's switch for :func:`grouped_attention`."""


class SlotModel:
    """A transformers causal LM over a :class:`SlotCache`. ``vocab`` ids are emitted: wider heads are cropped, narrower
    ones padded with −inf (an id that a draft can't emit has probability 0)."""

    def __init__(self, network: Any, vocab: int, slots: int, capacity: int) -> None:
        self.network = network
        self.vocab = vocab
        self.device: torch.device = network.device
        self.graphs = graphs_on(self.device)
        spare = 0 if self.graphs is None else 1
        self.cache = SlotCache(network.config.num_hidden_layers, slots, capacity, self.device, spare)

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill ``tokens`` in chunks; they are committed."""
        self.cache.open(slot)
        for start in range(0, len(tokens), PREFILL_CHUNK):
            chunk = tokens[start : start + PREFILL_CHUNK]
            rows = self.cache.append(slot, range(-1, len(chunk) - 1))
            self._prefill([(slot, rows)], [list(chunk)])
            self.cache.keep(slot, rows)

    def _prefill(self, wanted: Sequence[tuple[int, list[int]]], tokens: Sequence[Sequence[int]]) -> None:
        self.run(self.network, wanted, tokens, logits_to_keep=1)

    def extend(self, batch: Sequence[tuple[int, Sequence[int] | Tensor, Sequence[int]]]) -> list[Tensor]:
        """Append (slot, tokens, parent scratch rows) and compute them: logits [n, V] per slot."""
        wanted = [(slot, self.cache.append(slot, parents)) for slot, _, parents in batch]
        return self.run(self.network, wanted, [tokens for _, tokens, _ in batch])

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit these scratch rows."""
        self.cache.keep(slot, path)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self.cache.open(slot)

    def run(
        self,
        network: Any,
        wanted: Sequence[tuple[int, list[int]]],
        tokens: Sequence[Sequence[int] | Tensor] | None,
        embeddings: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> list[Tensor]:
        """Forward ``wanted`` scratch rows through ``network`` (this model, or some of its layers on the same cache)
        from token ids or from ``embeddings`` [B, N, hidden]; logits [n, V] per slot."""
        return self.rows(self.passed(network, wanted, tokens, embeddings, logits_to_keep)[0], wanted)

    def rows(self, logits: Tensor, wanted: Sequence[tuple[int, list[int]]]) -> list[Tensor]:
        """A pass's ``logits`` [B, N, head width] as [n, V] per slot."""
        logits = fit(logits, self.vocab)
        return [logits[b, : len(rows)] for b, (_, rows) in enumerate(wanted)]

    def passed(
        self,
        network: Any,
        wanted: Sequence[tuple[int, list[int]]],
        tokens: Sequence[Sequence[int] | Tensor] | None,
        embeddings: Tensor | None = None,
        logits_to_keep: int = 0,
    ) -> tuple[Tensor, ...]:
        """What :meth:`forward` gives for ``wanted``, from a recorded graph where there is one: passes that keep all of
        their logits (drafting and verification, not prompts) on CUDA. Padding is computed and left out by the caller.
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
            self.cache.current = static = now.over(tensors)
            return self.forward(network, static, *((given, None) if embeddings is None else (None, given)), 0)

        given = ids if embeddings is None else embeddings
        assert given is not None
        name = (network, tuple(slot for slot, _ in wanted), embeddings is None)
        with forwards.forward(self.device):
            return self.graphs.run(name, (*now.tensors, given), work)

    def forward(
        self, network: Any, now: Pass, ids: Tensor | None, embeddings: Tensor | None, logits_to_keep: int
    ) -> tuple[Tensor, ...]:
        """The device's work of a pass and nothing else: logits [B, N, head width] first."""
        with torch.no_grad(), grouped_attention(self.device):
            return (
                network(
                    input_ids=ids,
                    inputs_embeds=embeddings,
                    attention_mask=attention_masks(network, now),
                    position_ids=now.positions,
                    cache=self.cache,
                    use_cache=True,
                    logits_to_keep=logits_to_keep,
                ).logits,
            )


class SlotTarget(SlotModel):
    """A whole model as the engine's target: scratch row 0 is the root, row i + 1 candidate i."""

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        """One pass, no row deferred."""
        extensions = [
            (one.slot, (one.root, *one.tokens), (ROOT, *(parent + 1 for parent in one.parents))) for one in batch
        ]
        return [Scores(rows) for rows in self.extend(extensions)]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the root and the accepted candidates."""
        self.cache.keep(slot, [0, *(node + 1 for node in path)])


@contextmanager
def grouped_attention(device: torch.device) -> Iterator[None]:
    """On the CPU: the library's fused attention takes fewer key than query heads as they are.

    By default it repeats the cache's rows for every query head once a mask is given, since GPU kernels need that; the
    copies cost as much as the weights from some thousand tokens on. The switch is an environment variable of its own.
    """
    if device.type != "cpu" or GROUPED in os.environ:
        yield
        return
    os.environ[GROUPED] = "1"
    try:
        yield
    finally:
        os.environ.pop(GROUPED, None)


def padded_ids(tokens: Sequence[Sequence[int] | Tensor], width: int, device: torch.device) -> Tensor:
    """Token ids [B, width] of rows that the host has, or that lie on the device already; zeros after their ends."""
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
    """The pass's mask, or one per kind of attention for models that mix them (full and sliding window).

    Added to the scores: 0 or the most negative number, which fused and eager attention both take; from a boolean mask
    every layer would make such a one again.
    """
    config = network.config
    window = getattr(config, "sliding_window", None)
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    hidden = torch.finfo(network.dtype).min

    def mask(width: int | None) -> Tensor:
        visible = now.mask(width)
        return torch.zeros(visible.shape, dtype=network.dtype, device=visible.device).masked_fill_(~visible, hidden)

    if len(kinds) > 1:
        return {kind: mask(window if kind == "sliding_attention" else None) for kind in kinds}
    return mask(None if kinds == ["full_attention"] else window)


def fit(logits: Tensor, vocab: int) -> Tensor:
    """Logits [..., head width] as [..., vocab]."""
    missing = vocab - logits.shape[-1]
    return functional.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[..., :vocab]
