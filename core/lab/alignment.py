"""The paper's Figure 4: net ΔBE of truncating the target, simulated over pairs of a given alignment (Lemma 1).

The paper names the ratios but not how its pairs are drawn; ``core/lab/figure_notes.py`` lists what is assumed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from core.errors import BadInput
from core.lab.emission import Vector, truncation_mask
from core.lab.theory import lemma1

Alignment = tuple[float, float, float]
"""Shares of matching, partially overlapping and unrelated tokens."""

ALIGNMENTS: tuple[Alignment, ...] = ((0.8, 0.15, 0.05), (0.6, 0.3, 0.1), (0.4, 0.4, 0.2), (0.2, 0.5, 0.3))
VOCABULARY = 20
SPREAD = 2.5
"""Standard deviation of the simulated target's logits."""

SHARPNESS = 2.0
"""Factor on the draft's logits. The sign of ΔBE depends on it: at 1 it is negative almost everywhere."""


@dataclass(frozen=True, slots=True)
class Curve4:
    """One alignment ratio: mean and standard deviation over the simulated pairs at each parameter."""

    alignment: Alignment
    mean: Vector
    sd: Vector
    gain: Vector
    loss: Vector
    positive: Vector
    """Share of pairs with ΔBE > 0."""

    @property
    def band(self) -> Vector:
        """mean + sd along the grid, then mean − sd back along it: the outline of the band."""
        around = list(zip(self.mean, self.sd, strict=True))
        return (*(mean + sd for mean, sd in around), *(mean - sd for mean, sd in reversed(around)))


@dataclass(frozen=True, slots=True)
class Figure4:
    """Net ΔBE (Lemma 1) of truncating the target, over a grid."""

    kind: Literal["min_p", "eta"]
    grid: Vector
    curves: tuple[Curve4, ...]
    pairs: int


def figure4(
    kind: Literal["min_p", "eta"],
    grid: Sequence[float],
    alignments: Sequence[Alignment] = ALIGNMENTS,
    pairs: int = 100,
    seed: int = 0,
    sharpness: float = SHARPNESS,
) -> Figure4:
    """The simulation with ``pairs`` random pairs a ratio; the same pairs at every parameter.

    Raises BadInput for ratios that don't sum to 1, fewer than two pairs, or a sharpness that is not positive.
    """
    if pairs < 2:
        raise BadInput(f"{pairs} pairs have no standard deviation: simulate at least 2.")
    rule = {"min_p": "spec_cascade:{}", "eta": "typical:{}"}[kind]
    curves = []
    for number, alignment in enumerate(alignments):
        drawn = [
            simulated_pair(alignment, np.random.default_rng([seed, number, one]), sharpness) for one in range(pairs)
        ]
        per_value = [[lemma1(p, q, truncation_mask(rule.format(value), p)) for p, q in drawn] for value in grid]
        curves.append(
            Curve4(
                alignment,
                mean=tuple(fmean(one.change for one in found) for found in per_value),
                sd=tuple(stdev(one.change for one in found) for found in per_value),
                gain=tuple(fmean(one.gain for one in found) for found in per_value),
                loss=tuple(fmean(one.loss for one in found) for found in per_value),
                positive=tuple(fmean(one.change > 0.0 for one in found) for found in per_value),
            )
        )
    return Figure4(kind, tuple(grid), tuple(curves), pairs)


def simulated_pair(alignment: Alignment, random: np.random.Generator, sharpness: float) -> tuple[Tensor, Tensor]:
    """p = softmax of normal logits; the draft's logit of a token is the target's (matching), the target's plus standard
    normal noise (partial), or one drawn anew (unrelated), all times ``sharpness``, before its own softmax."""
    if abs(sum(alignment) - 1.0) > 1e-9 or min(alignment) < 0.0:
        raise BadInput(f"The ratios {alignment} are no shares that sum to 1.")
    if not 0.0 < sharpness <= 100.0:
        raise BadInput(f"The draft's sharpness is {sharpness}: it is a factor above 0, 100 at most.")
    target = random.normal(0.0, SPREAD, VOCABULARY)
    kind = random.choice(3, size=VOCABULARY, p=alignment)
    partial = target + random.normal(0.0, 1.0, VOCABULARY)
    unrelated = random.normal(0.0, SPREAD, VOCABULARY)
    draft = np.choose(kind, (target, partial, unrelated))
    return torch.softmax(torch.from_numpy(target), 0), torch.softmax(torch.from_numpy(sharpness * draft), 0)
