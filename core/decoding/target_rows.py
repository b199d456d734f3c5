"""The target's rows of one round, which a walk reads at the positions that it visits.

Two things are computed for a whole pass at once: the largest value of every row, which reveals broken rows and gives
the greedy choice, and the laws after the roots of requests with the same sampling. All else is formed when first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isnan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.cache.target import DeferredRow, Scores
from core.drafting.draft import Draft
from core.errors import EngineFault
from core.faults import empty_after, excluded_after, logits_fault
from core.records import ROOT
from core.sampling.distributions import Distributions
from core.sampling.probability import Certain, Distribution, Law
from core.types import Sampling

if TYPE_CHECKING:
    from core.decoding.request_state import RequestState


@dataclass(frozen=True, slots=True)
class Peaks:
    """Largest logit of each row of one request, and the first token that has it; NaN counts as the largest."""

    values: Sequence[float]
    tokens: Sequence[int]

    def broken(self, row: int) -> bool:
        """Whether this row holds NaN or +∞, or only −∞."""
        return not -inf < self.values[row] < inf  # also true for NaN


def peaks(logits: Sequence[Tensor]) -> list[Peaks]:
    """Peaks of every request's raw logits [1 + n, V], read from the device at once."""
    found = [rows.max(dim=-1) for rows in logits]
    values = torch.cat([one.values for one in found]).tolist()
    tokens = torch.cat([one.indices for one in found]).tolist()
    stops = list(accumulate(len(rows) for rows in logits))
    spans = [slice(stop - len(rows), stop) for stop, rows in zip(stops, logits, strict=True)]
    return [Peaks(values[span], tokens[span]) for span in spans]


@dataclass(slots=True)
class TargetRows:
    """Raw target ``logits`` [1 + n, V] after the root and each of the n candidates of ``draft``, as laws on demand.

    ``deferred`` is the last candidate's row as long as ``logits`` lacks it. ``prefix``: all committed tokens; ``root``:
    the law after the root if it was formed together with those of other requests; ``visited``: the law of every
    position that was read, in the order of reading.
    """

    draft: Draft
    logits: Tensor
    peaks: Peaks
    distributions: Distributions
    prefix: Sequence[int]
    round: int
    deferred: DeferredRow | None = None
    root: Law | None = None
    visited: dict[int, Distribution] = field(default_factory=dict)

    @property
    def vocab(self) -> int:
        """Number of ids that can be emitted, V."""
        return self.logits.shape[-1]

    @property
    def greedy(self) -> bool:
        """Whether every law is certain of one token."""
        return self.distributions.greedy

    def law(self, node: int) -> Distribution:
        """p after ``node`` (ROOT: after the committed prefix).

        Raises :class:`EngineFault` on a NaN or infinite row and on a row without mass, naming round and node.
        """
        if node not in self.visited:
            self._check(node)
            law = self._certain(node) if self.greedy else self._formed(node)
            if law is None:
                raise self._fault(excluded_after(node))
            self.visited[node] = law
        return self.visited[node]

    def vector(self, node: int) -> Tensor:
        """p [V] after ``node``. Raises as :meth:`law` does."""
        return self.law(node).vector(self.vocab, self.logits.device)

    def untempered(self, node: int) -> Tensor:
        """The target's probabilities [V] after ``node`` without temperature and truncation."""
        return self.distributions.growth(self.distributions.penalised(self.logits[node + 1], self._before(node)))

    def _check(self, node: int) -> None:
        if self.deferred is not None and node + 1 == len(self.logits):
            self._append(self.deferred.compute())
            self.deferred = None
        fault = self.draft.fault
        if self.peaks.broken(node + 1):
            fault = fault or logits_fault(self.logits[node + 1], "target", node) or empty_after(node)
        if fault:
            raise self._fault(fault)

    def _fault(self, sentence: str) -> EngineFault:
        return EngineFault(f"round {self.round + 1}: {sentence}.")  # counted from 1, as pages count rounds

    def _append(self, row: Tensor) -> None:
        (highest,) = peaks([row])
        self.logits = torch.cat([self.logits, row])
        self.peaks = Peaks([*self.peaks.values, *highest.values], [*self.peaks.tokens, *highest.tokens])

    def _certain(self, node: int) -> Certain | None:
        if not self.distributions.penalties:
            return Certain(self.peaks.tokens[node + 1])
        token = self.distributions.choice(self.logits[node + 1], self._before(node))
        return None if token is None else Certain(token)

    def _formed(self, node: int) -> Law | None:
        if node == ROOT and self.root is not None:
            law = self.root
        else:
            law = Law(self.distributions.target(self.logits[node + 1], self._before(node)))
        return None if isnan(law.of(0)) else law

    def _before(self, node: int) -> Sequence[int]:
        """Tokens before the position after ``node``; empty without penalties, which alone read them, because copying
        the context takes time in proportion to its length."""
        if not self.distributions.penalties:
            return ()
        return [*self.prefix, *(self.draft.tokens[i] for i in self.draft.path(node))]


def target_rows(states: Sequence[RequestState], drafts: Sequence[Draft], scores: Sequence[Scores]) -> list[TargetRows]:
    """The rows of one verification pass, per request."""
    highest = peaks([one.rows for one in scores])
    roots = root_laws(states, [one.rows for one in scores], highest)
    return [
        TargetRows(
            draft, own.rows, peak, state.distributions, state.sequence, state.rounds, own.deferred, roots.get(state)
        )
        for state, draft, own, peak in zip(states, drafts, scores, highest, strict=True)
    ]


def root_laws(
    states: Sequence[RequestState], logits: Sequence[Tensor], highest: Sequence[Peaks]
) -> dict[RequestState, Law]:
    """The law after the root of each request that shares its sampling with another, formed together.

    Left out are greedy requests, which need no law, requests with penalties, which read their own tokens, and requests
    with a broken or empty root row, so that these alone fail.
    """
    alike: dict[Sampling, list[tuple[RequestState, Tensor]]] = {}
    for state, rows, peak in zip(states, logits, highest, strict=True):
        if not peak.broken(0) and not state.distributions.greedy and not state.distributions.penalties:
            alike.setdefault(state.request.sampling, []).append((state, rows[0]))
    laws: dict[RequestState, Law] = {}
    for group in alike.values():
        if len(group) > 1:
            together = group[0][0].distributions.targets(torch.stack([row for _, row in group]))
            laws.update((state, Law(p)) for (state, _), p in zip(group, together, strict=True))
    return laws
