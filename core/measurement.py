"""Measuring the positions that a walk tested: induced law, residual and distortion of each (``core/distortion.py``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from core.block import block_of
from core.distortion import distortion, induced_law
from core.position import position_of
from core.records import Distortion, Verdict
from core.token_rule import BlockRule, TokenRule
from core.trees import Draft


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one tested position: what its rule emits and what it redraws from, both [V], and the distance to p_ref."""

    law: Tensor
    residual: Tensor
    distortion: Distortion


def measure(
    draft: Draft,
    verdict: Verdict,
    visited: dict[int, Tensor],
    rule: TokenRule,
    untempered: Callable[[int], Tensor] | None = None,
) -> dict[int, Measurement]:
    """Every tested position of a walk by its node. ``visited`` holds p [V] by node, as the walk read them.

    A block is not measured but stated: what a position emits depends on the coins of the whole chain, and the law of
    the chain is exactly the target's (Sun et al. 2024, Theorem 1; enumerated in tests/test_block.py). Its residuals
    are those that each length would have drawn from.
    """
    block = block_of(draft, visited.__getitem__) if isinstance(rule, BlockRule) else None
    tried = {trial.node for trial in verdict.trials}
    measured = {}
    for at, p in visited.items():
        candidates = draft.children(at)
        tested = [node for node in candidates if node in tried]
        if not tested:
            continue
        position = position_of(draft, at, p, rule, untempered)
        if block is not None:
            law, residual, conditional = p, block.residual(at + 1), False
        else:
            induced = induced_law(draft, candidates, position)
            law, residual, conditional = induced.law, induced.residual, induced.conditional
        measured[at] = Measurement(law, residual, distortion(draft, tested, position, law, conditional))
    return measured
