"""Whether two greedy decoders give the same output, up to a first near-tie of the network's own logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from core.errors import EngineFault
from core.models.attention import library_attention
from core.models.packing import original_linears

if TYPE_CHECKING:
    from core.models.pair import Pair

MARGIN = 1e-3
"""Logits closer than this may change their order with the order of float additions."""

ULPS = 8
"""The margin in units of the last place of the largest logit, for precisions too short to resolve :data:`MARGIN`."""


@dataclass(frozen=True, slots=True)
class NearTie:
    """The first difference of two outputs: ``position`` among the new tokens, the two ``tokens``, and ``margin``, from
    the largest logit to the smaller of the two tokens' logits."""

    position: int
    tokens: tuple[int, int]
    margin: float


class OutputCheck:
    """Compares outputs; differences are judged by plain forward passes of the target on its own linear modules."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._known: dict[tuple[int, ...], NearTie] = {}

    def check(self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int], who: str) -> NearTie | None:
        """None when both outputs are equal, or their near-tie. Raises EngineFault when they differ otherwise."""
        if tuple(ours) == tuple(theirs):
            return None
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if at is None:
            raise EngineFault(
                f"{who} gave {len(theirs)} tokens and this engine {len(ours)}, of which all common ones are equal: "
                "they do not stop alike."
            )
        key = (*prompt, *ours[: at + 1], theirs[at])
        if key not in self._known:
            self._known[key] = self._judge(prompt, ours[:at], at, (ours[at], theirs[at]), who)
        return self._known[key]

    def _judge(
        self, prompt: Sequence[int], common: Sequence[int], at: int, tokens: tuple[int, int], who: str
    ) -> NearTie:
        logits = self._logits([*prompt, *common])
        top = float(logits.max())
        margin = top - min(float(logits[token]) for token in tokens)
        allowed = max(MARGIN, ULPS * torch.finfo(self._pair.dtype).eps * abs(top))
        if not margin < allowed:  # also true for NaN
            raise EngineFault(
                f"{who} chose token {tokens[1]} at new token {at} where this engine chose {tokens[0]}, "
                f"and that is no near-tie: the smaller of their logits is {margin:.3g} below the largest."
            )
        return NearTie(at, tokens, margin)

    def _logits(self, ids: Sequence[int]) -> torch.Tensor:
        network: Any = self._pair.target.network
        with original_linears(network), library_attention(network), torch.no_grad():
            whole = network(torch.tensor([list(ids)], device=self._pair.device), use_cache=False, logits_to_keep=1)
        return whole.logits[0, -1].double()
