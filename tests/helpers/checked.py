"""A target that checks itself while an engine uses it: logits against fresh forwards, dead rows filled with NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from core.cache.slots import Scored, SlotModel
from core.records import ROOT


class CheckedTarget:
    """Wraps a slot target. Every scored row must equal a fresh forward of its own path; after every ``keep`` all dead
    rows of the slot are poisoned with NaN. ``rows`` counts what was compared, ``moved`` the kept non-first branches,
    ``left_out`` rows that a pass left for later and ``late`` those that were computed then."""

    def __init__(self, inner: Any, network: Any, tolerance: float = 1e-4) -> None:
        self.inner = inner
        self.network = network
        self.tolerance = tolerance
        self.sequences: dict[int, list[int]] = {}
        self.scored: dict[int, Scored] = {}
        self.rows = 0
        self.moved = 0
        self.left_out = 0
        self.late = 0

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        self.inner.open(slot, tokens)
        self.sequences[slot] = list(tokens)
        poison(self.inner, slot)

    def score(self, batch: Sequence[Scored]) -> list[Tensor]:
        logits = self.inner.score(batch)
        for one, rows in zip(batch, logits, strict=True):
            self.scored[one.slot] = one
            for node, row in enumerate(rows, start=ROOT):
                self.check(one, node, row)
            self.left_out += 1 + len(one.draft.tokens) - len(rows)
        return logits

    def last(self, slot: int) -> Tensor:
        one, logits = self.scored[slot], self.inner.last(slot)
        self.check(one, len(one.draft.tokens) - 1, logits[0])
        self.late += 1
        return logits

    def check(self, one: Scored, node: int, row: Tensor) -> None:
        path = [one.draft.tokens[i] for i in one.draft.path(node)]
        fresh = fresh_logits(self.network, [*self.sequences[one.slot], one.root, *path])
        torch.testing.assert_close(row, fresh[: row.shape[-1]], atol=self.tolerance, rtol=0)
        self.rows += 1

    def keep(self, slot: int, path: Sequence[int]) -> None:
        one = self.scored.pop(slot)
        self.sequences[slot] += [one.root, *(one.draft.tokens[node] for node in path)]
        self.moved += list(path) != list(range(len(path)))
        self.inner.keep(slot, path)
        poison(self.inner, slot)

    def close(self, slot: int) -> None:
        self.inner.close(slot)


def poison(model: SlotModel, slot: int) -> None:
    """Fill every row after the slot's regions that was ever written with NaN."""
    state = model.cache.slots[slot]
    for layer in model.cache.rows:
        if layer.keys is not None and layer.values is not None:
            layer.keys[slot, :, state.end : state.dirty] = torch.nan
            layer.values[slot, :, state.end : state.dirty] = torch.nan


def fresh_logits(network: Any, tokens: Sequence[int]) -> Tensor:
    """Next-token logits [V] by one plain forward without any cache."""
    with torch.no_grad():
        return network(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]
