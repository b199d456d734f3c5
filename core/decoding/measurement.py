"""Measuring the positions that a walk tested: induced law, residual and distortion of each (``distortion.py``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from core.decoding.block import block_of
from core.decoding.distortion import distortion, induced_law
from core.decoding.position import position_of
from core.drafting.draft import Draft
from core.records import Distortion, Verdict
from core.rules.token_rule import BlockRule, TokenRule


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one tested position: what its rule emits and what it redraws from, both [V], and the distance to p_ref.
    ``law`` and ``distortion`` are None where a position has no law of its own (block verification)."""

    law: Tensor | None
    residual: Tensor
    distortion: Distortion | None


def measure(
    draft: Draft,
    verdict: Verdict,
    visited: dict[int, Tensor],
    rule: TokenRule,
    untempered: Callable[[int], Tensor] | None = None,
) -> dict[int, Measurement]:
    """Every tested position of a walk by its node. ``visited`` holds p [V] by node, as the walk read them.

    What a position of a block emits depends on the coins of the whole chain, so it has residuals alone, those that
    each length would have drawn from; that the chain's law is the target's is enumerated in test_block.py.
    """
    block = block_of(draft, visited.__getitem__) if isinstance(rule, BlockRule) else None
    tried = {trial.node for trial in verdict.trials}
    measured = {}
    for at, p in visited.items():
        candidates = draft.children(at)
        tested = [node for node in candidates if node in tried]
        if not tested:
            continue
        if block is not None:
            measured[at] = Measurement(None, block.residual(at + 1), None)
            continue
        position = position_of(draft, at, p, rule, untempered)
        one = induced_law(draft, candidates, position)
        distance = distortion(draft, tested, position, one.law, one.conditional)
        measured[at] = Measurement(one.law, one.residual, distance)
    return measured
