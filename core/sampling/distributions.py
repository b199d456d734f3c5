"""From raw logits to processed distributions.

All processing uses the library's own logits processors, in the library's order, per position over the true prefix
(earlier candidates of the round included). Softmax is in float32. Shapes: V = vocabulary (ids that can be emitted).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import cast

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core.sampling.allowed import allowed_set
from core.sampling.prefix import Prefix
from core.sampling.probability import normalised
from core.types import AllowedSet, Sampling


@dataclass(frozen=True, slots=True)
class Distributions:
    """Processors that turn raw logits rows of one request into p, q and growth rows.

    Temperature, top-k, top-p and penalties shape p and q; min-p, η, ε and further allowed sets truncate p only, unless
    ``sampling.truncate_draft`` is set (rules.md, head). For greedy requests the rows are one-hot.

    A row without mass (processing leaves no finite score, or the raw logits have none) is NaN at every token.
    """

    penalties: LogitsProcessorList
    draft_warpers: LogitsProcessorList
    target_warpers: LogitsProcessorList
    greedy: bool
    target_sets: tuple[AllowedSet, ...] = ()
    draft_sets: tuple[AllowedSet, ...] = ()
    """Further allowed sets, formed on the finished distribution as in a truncation rule."""
    keeps_growth: bool = False
    """Whether growers keep the drafter's own probabilities in the draft, for a greedy rule with a law of its own."""

    @classmethod
    def of(
        cls,
        sampling: Sampling,
        eos: frozenset[int],
        prompt_tokens: int,
        device: torch.device,
    ) -> Distributions:
        """Processors of one request; ``prompt_tokens`` is where its output begins (for ``min_new_tokens``)."""
        penalties = LogitsProcessorList()
        if sampling.repetition_penalty != 1.0:
            penalties.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        if sampling.min_new_tokens and eos:
            ends = sorted(eos)
            penalties.append(
                MinNewTokensLengthLogitsProcessor(prompt_tokens, sampling.min_new_tokens, ends, device=str(device))
            )
        if sampling.greedy:
            return cls(penalties, LogitsProcessorList(), LogitsProcessorList(), True)
        common = _common_warpers(sampling)
        truncation = _truncation_warpers(sampling)
        draft = LogitsProcessorList([*common, *truncation] if sampling.truncate_draft else common)
        target = LogitsProcessorList([*common, *truncation])
        sets = tuple(one for one in sampling.allowed if not one.everything)
        return cls(penalties, draft, target, False, sets, sets if sampling.truncate_draft else ())

    def target(self, logits: Tensor, prefix: Sequence[int]) -> Tensor:
        """p [V] after ``prefix`` from raw target logits [V]."""
        return self._distribution(self.penalised(logits, prefix), self.target_warpers, self.target_sets)

    def targets(self, logits: Tensor) -> Tensor:
        """p [R, V] from raw target logits [R, V] of requests with the same sampling, each row as from :meth:`target`.
        Only without penalties, which read each request's own prefix."""
        return self._sampled(logits.float(), self.target_warpers, self.target_sets)

    def choice(self, logits: Tensor, prefix: Sequence[int]) -> int | None:
        """The token with the highest score after ``prefix``; None if no token has a finite score."""
        highest = self.penalised(logits, prefix).max(dim=-1)
        value, token = torch.stack([highest.values.double(), highest.indices.double()]).tolist()
        return int(token) if isfinite(value) else None

    def draft(self, scores: Tensor) -> Tensor:
        """q [V] from the draft's :meth:`penalised` scores [V]: what a sampled candidate is drawn from.

        The host reads nothing from the device, except with draft truncations by ε or η: the library's η warper checks
        its input, and thresholds that depend on a row's entropy or peak are computed on the host
        (``core/sampling/allowed.py``).
        """
        return self._distribution(scores, self.draft_warpers, self.draft_sets)

    @property
    def draws_growth(self) -> bool:
        """Whether q is the drafter's own law (:meth:`growth`): sampled, untempered and untruncated."""
        return not (self.greedy or self.draft_warpers or self.draft_sets)

    def growth(self, scores: Tensor) -> Tensor:
        """A model's own probabilities [..., V] of :meth:`penalised` scores, untempered and untruncated. Deterministic
        trees grow by them, as in EAGLE-2 and SGLang; they are reported as ``score`` and never enter an acceptance ratio
        (rules.md §2)."""
        return torch.softmax(scores, dim=-1)

    def _distribution(self, scores: Tensor, warpers: LogitsProcessorList, sets: tuple[AllowedSet, ...]) -> Tensor:
        """The distribution [V] of penalised scores [V]."""
        return _peak(scores) if self.greedy else self._sampled(scores[None], warpers, sets)[0]

    def _sampled(self, scores: Tensor, warpers: LogitsProcessorList, sets: tuple[AllowedSet, ...]) -> Tensor:
        """Distributions [R, V] of penalised scores [R, V]."""
        distributions = torch.softmax(warpers(_NO_PREFIX, scores), dim=-1)
        return torch.stack([_within(row, sets) for row in distributions]) if sets else distributions

    def penalised(self, logits: Tensor, prefix: Sequence[int] | Prefix) -> Tensor:
        """Scores [V] in float32 after ``prefix``, from raw logits [V]: the penalties alone are applied."""
        scores = logits.float()
        if not self.penalties:
            return scores
        ids = (prefix if isinstance(prefix, Prefix) else Prefix(prefix)).ids(logits.device)
        return self.penalties(cast(torch.LongTensor, ids), scores[None])[0]


_NO_PREFIX = cast(torch.LongTensor, torch.empty((1, 0), dtype=torch.long))
"""Prefix for warpers, which use only the scores; only penalties read the prefix."""


def _peak(scores: Tensor) -> Tensor:
    """The one-hot distribution [V] at the highest of ``scores`` [V], or NaN throughout if that is not finite."""
    highest = scores.max(dim=-1)
    zero = torch.where(highest.values.isfinite(), 0.0, torch.nan)
    return zero.repeat(len(scores)).scatter_(0, highest.indices[None], (zero + 1.0)[None])


def _within(distribution: Tensor, sets: tuple[AllowedSet, ...]) -> Tensor:
    for one in sets:
        distribution = normalised(distribution * allowed_set(one, distribution))
    return distribution


def _common_warpers(sampling: Sampling) -> LogitsProcessorList:
    warpers = LogitsProcessorList()
    if sampling.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers


def _truncation_warpers(sampling: Sampling) -> LogitsProcessorList:
    warpers = LogitsProcessorList()
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    if sampling.epsilon:
        warpers.append(EpsilonLogitsWarper(sampling.epsilon))
    if sampling.eta:
        warpers.append(_Eta(sampling.eta))
    return warpers


class _Eta(EtaLogitsWarper):
    """The library's η warper, which raises on rows without mass: here these pass as they came."""

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """Truncated scores [R, V]."""
        lost = ~scores.amax(dim=-1, keepdim=True).isfinite()
        return torch.where(lost, scores, super().__call__(input_ids, scores.masked_fill(lost, 0.0)))
