"""Drafting with another model of the same vocabulary, which has a slot cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.cache.slots import SlotModel
from core.drafting.base import DraftRequest
from core.drafting.draft import Draft
from core.drafting.growing import GrownDraft, grow_drafts


@dataclass(slots=True)
class _Sequence:
    """State of one slot: how many committed tokens its cache holds, and the draft that awaits its verdict."""

    cached: int
    grown: GrownDraft | None = None


class SmallModel:
    """Drafter that runs ``model``.

    Committed tokens that its cache lacks (the last candidate of an accepted path, a correction, a bonus) are fed as a
    chain at the start of the next proposal.
    """

    def __init__(self, model: SlotModel, recomputed_share: float | None = None) -> None:
        self.model = model
        self.recomputed_share = recomputed_share
        self._sequences: dict[int, _Sequence] = {}

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill the draft model's cache."""
        self.model.open(slot, tokens)
        self._sequences[slot] = _Sequence(len(tokens))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Grow drafts of the requested shapes, one batched draft pass per step."""
        drafts = grow_drafts(requests, self._missing, self.model.extend)
        for one in drafts:
            self._sequences[one.slot].grown = one
        return [one.draft for one in drafts]

    def _missing(self, request: DraftRequest) -> Sequence[int]:
        return request.prefix[self._sequences[request.slot].cached :]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the fed tokens and the accepted nodes that were computed; other accepted nodes are fed next time."""
        sequence = self._sequences[slot]
        if sequence.grown is None:
            return
        rows = list(range(sequence.grown.fed))
        for node in path:
            row = sequence.grown.rows[node]
            if row is None:
                break
            rows.append(row)
        self.model.keep(slot, rows)
        sequence.cached += len(rows)
        sequence.grown = None

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self.model.close(slot)
        self._sequences.pop(slot, None)
