"""The target's rows of one round: what a walk reads at the positions that it visits.

A pass's logits are looked at together: the largest value of every row, which shows broken rows and is the greedy
choice, and the distributions after the roots of requests with equal sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import torch
from torch import Tensor

from core.cache.target import DeferredRow
from core.drafting.draft import Draft
from core.errors import EngineFault
from core.faults import logits_fault
from core.records import ROOT
from core.sampling.distributions import Distributions
from core.sampling.probability import one_hot


@dataclass(frozen=True, slots=True)
class Peaks:
    """The largest logit of each row of one request and the first token that has it; NaN counts as the largest."""

    values: Sequence[float]
    tokens: Sequence[int]

    def broken(self, row: int) -> bool:
        """Whether this row holds NaN or +∞."""
        return not self.values[row] < inf  # NaN is not either


def peaks(logits: Sequence[Tensor]) -> list[Peaks]:
    """Of every request's raw logits [1 + n, V], read from the device at once."""
    found = [rows.max(dim=-1) for rows in logits]
    values = torch.cat([one.values for one in found]).tolist()
    tokens = torch.cat([one.indices for one in found]).tolist()
    stops = list(accumulate(len(rows) for rows in logits))
    spans = [slice(stop - len(rows), stop) for stop, rows in zip(stops, logits, strict=True)]
    return [Peaks(values[span], tokens[span]) for span in spans]


@dataclass(slots=True)
class Rows:
    """Raw target ``logits`` [1 + n, V] after the root and each node of ``draft``; ``prefix``: all committed tokens.

    ``deferred`` is the row of the last node while ``logits`` lack it. ``root`` is p [V] after the root where it was
    formed together with those of other requests. ``visited`` holds every position asked for, in the order they
    were: its p [V], or the one token of which a greedy request is certain.
    """

    draft: Draft
    logits: Tensor
    peaks: Peaks
    distributions: Distributions
    prefix: Sequence[int]
    round: int
    deferred: DeferredRow | None = None
    root: Tensor | None = None
    visited: dict[int, Tensor | int] = field(default_factory=dict)

    def target(self, node: int) -> Tensor:
        """p [V] after ``node``. Raises :class:`EngineFault` on a NaN or infinite row, naming round and node."""
        if self.distributions.greedy:
            self.choice(node)
        else:
            self._check(node)
            self.visited[node] = self._law(node)
        return self.law(node)

    def choice(self, node: int) -> int:
        """The token after ``node`` of a greedy request. Raises as :meth:`target`."""
        self._check(node)
        if self.distributions.penalties:
            token = self.distributions.choice(self.logits[node + 1], self._before(node))
        else:
            token = self.peaks.tokens[node + 1]
        self.visited[node] = token
        return token

    def law(self, node: int) -> Tensor:
        """p [V] after a visited ``node``."""
        p = self.visited[node]
        return one_hot(p, self.logits.shape[-1], self.logits.device) if isinstance(p, int) else p

    def untempered(self, node: int) -> Tensor:
        """The target's probabilities [V] after ``node`` without temperature and truncation."""
        return self.distributions.growth(self.logits[node + 1], self._before(node))

    def _check(self, node: int) -> None:
        if self.deferred is not None and node + 1 == len(self.logits):
            self._add(self.deferred.compute())
            self.deferred = None
        fault = self.draft.fault
        if self.peaks.broken(node + 1):
            fault = fault or logits_fault(self.logits[node + 1], "target", node)
        if fault:
            raise EngineFault(f"round {self.round}: {fault}.")

    def _add(self, row: Tensor) -> None:
        (highest,) = peaks([row])
        self.logits = torch.cat([self.logits, row])
        self.peaks = Peaks([*self.peaks.values, *highest.values], [*self.peaks.tokens, *highest.tokens])

    def _law(self, node: int) -> Tensor:
        if node == ROOT and self.root is not None:
            return self.root
        return self.distributions.target(self.logits[node + 1], self._before(node))

    def _before(self, node: int) -> Sequence[int]:
        """The tokens before the position, which only penalties look at: copying them costs as much as they are many."""
        if not self.distributions.penalties:
            return ()
        return [*self.prefix, *(self.draft.tokens[i] for i in self.draft.path(node))]
