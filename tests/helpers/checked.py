"""A target that checks itself while an engine uses it: logits against fresh forwards, dead rows filled with NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import core.decoding.engine
from core.cache.slots import SlotModel
from core.cache.target import Candidates, DeferredRow, Scores
from core.records import ROOT


class CheckedTarget:
    """Wraps a slot target. Every scored row must equal a fresh forward of its own path; after every ``keep`` all dead
    rows of the slot are poisoned with NaN. ``rows`` counts what was compared, ``moved`` the kept non-first branches,
    ``deferred`` rows that a pass left out and ``computed`` those of them that were computed later."""

    def __init__(self, inner: Any, network: Any, tolerance: float = 1e-4) -> None:
        self.inner = inner
        self.network = network
        self.tolerance = tolerance
        self.sequences: dict[int, list[int]] = {}
        self.scored: dict[int, Candidates] = {}
        self.rows = 0
        self.moved = 0
        self.deferred = 0
        self.computed = 0

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        self.inner.open(slot, tokens)
        self.sequences[slot] = list(tokens)
        poison(self.inner, slot)

    def score(self, batch: Sequence[Candidates]) -> list[Scores]:
        return [self.checked(one, scores) for one, scores in zip(batch, self.inner.score(batch), strict=True)]

    def checked(self, one: Candidates, scores: Scores) -> Scores:
        self.scored[one.slot] = one
        assert len(scores.rows) == 1 + len(one.tokens) - (scores.deferred is not None)
        self.check(one, dict(enumerate(scores.rows, start=ROOT)))
        if scores.deferred is None:
            return scores
        self.deferred += 1
        return Scores(scores.rows, CheckedRow(self, one, scores.deferred))

    def check(self, one: Candidates, rows: Mapping[int, Tensor]) -> None:
        """Compare the rows of some nodes (or the root) with fresh forwards, one for each branch that they lie on."""
        before = [*self.sequences[one.slot], one.root]
        inner = {node if node == ROOT else one.parents[node] for node in rows} - {ROOT}
        ends = [node for node in rows if node not in inner and (node != ROOT or len(rows) == 1)]
        paths = [path_nodes(one.parents, end) for end in ends]
        fresh = fresh_rows(self.network, [[*before, *(one.tokens[node] for node in path)] for path in paths])
        for path, logits in zip(paths, fresh, strict=True):
            for node, wanted in zip([ROOT, *path], logits[len(before) - 1 :], strict=False):
                if node in rows:
                    torch.testing.assert_close(rows[node], wanted[: rows[node].shape[-1]], atol=self.tolerance, rtol=0)
        self.rows += len(rows)

    def keep(self, slot: int, path: Sequence[int]) -> None:
        one = self.scored.pop(slot)
        self.sequences[slot] += [one.root, *(one.tokens[node] for node in path)]
        self.moved += list(path) != list(range(len(path)))
        self.inner.keep(slot, path)
        poison(self.inner, slot)

    def close(self, slot: int) -> None:
        self.inner.close(slot)


@dataclass(frozen=True)
class CheckedRow:
    """A deferred row that is compared like the others once it is computed."""

    target: CheckedTarget
    candidates: Candidates
    inner: DeferredRow

    def compute(self) -> Tensor:
        logits = self.inner.compute()
        self.target.check(self.candidates, {len(self.candidates.tokens) - 1: logits[0]})
        self.target.computed += 1
        return logits


def watched(monkeypatch: pytest.MonkeyPatch, target: Any) -> list[CheckedTarget]:
    """Make every engine check its target; the checking targets, in order of creation."""
    checked: list[CheckedTarget] = []

    def assemble(*arguments: Any) -> Any:
        inner, drafter = original(*arguments)
        checked.append(CheckedTarget(inner, target))
        return checked[-1], drafter

    original = core.decoding.engine.assemble
    monkeypatch.setattr(core.decoding.engine, "assemble", assemble)
    return checked


def poison(model: SlotModel, slot: int) -> None:
    """Fill every row after the slot's regions that was ever written with NaN."""
    state = model.cache.slots[slot]
    for layer in model.cache.rows:
        if layer.keys is not None and layer.values is not None:
            layer.keys[slot, :, state.end : state.dirty] = torch.nan
            layer.values[slot, :, state.end : state.dirty] = torch.nan


def assert_row(row: Tensor, network: Any, tokens: Sequence[int]) -> None:
    """Logits [V] are those of a fresh forward of ``tokens``."""
    torch.testing.assert_close(row, fresh_logits(network, tokens), atol=2e-4, rtol=0)


def fresh_logits(network: Any, tokens: Sequence[int]) -> Tensor:
    """Next-token logits [V] by one plain forward without any cache."""
    return fresh_rows(network, [tokens])[0, len(tokens) - 1]


def fresh_rows(network: Any, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Logits [sequences, longest, V] by one plain forward without any cache; shorter ones are padded on their right."""
    longest = max(len(one) for one in sequences)
    with torch.no_grad():
        ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one in sequences])
        return network(input_ids=ids, use_cache=False).logits


def path_nodes(parents: Sequence[int], node: int) -> list[int]:
    """Nodes from the root's child down to ``node``; none for ROOT."""
    path = []
    while node != ROOT:
        path.append(node)
        node = parents[node]
    return path[::-1]


def path_tokens(tokens: Sequence[int], parents: Sequence[int], node: int) -> list[int]:
    """Tokens from the root's child down to ``node``; none for ROOT."""
    return [tokens[one] for one in path_nodes(parents, node)]
