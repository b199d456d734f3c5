"""Growth of drafts in the scratch regions of a slot model: one pass over all slots per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from core.cache.rows import Extension
from core.drafting.base import DraftRequest
from core.drafting.draft import Draft
from core.drafting.growers import Grower
from core.records import ROOT


@dataclass(frozen=True, slots=True)
class GrownDraft:
    """A finished draft and its rows in the slot's scratch region.

    The first ``fed`` rows are the fed tokens, the root last (0 rows if nothing was drafted); ``rows[i]`` is the row of
    candidate i, None if the drafter didn't compute it.
    """

    slot: int
    draft: Draft
    fed: int
    rows: tuple[int | None, ...]


Score = Callable[[Mapping[int, Sequence[int]]], Mapping[int, Sequence[Tensor]]]
"""Logits [V] of the frontier nodes of each slot: {slot: nodes} → {slot: rows}."""


def grow_drafts(
    requests: Sequence[DraftRequest],
    feed: Callable[[DraftRequest], Sequence[int]],
    extend: Callable[[Sequence[Extension]], Sequence[Tensor]],
) -> list[GrownDraft]:
    """Grow one draft per request, in order.

    ``feed`` returns the committed tokens that the cache lacks, the root last; ``extend`` computes logits [n, V] of n
    new scratch rows of each slot. The scratch regions must be empty at the start.
    """
    growing = {request.slot: _Growing(request.grower()) for request in requests}
    fed = {request.slot: feed(request) for request in requests}

    def score(frontier: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[Tensor]]:
        batch = [growing[slot].extension(slot, nodes, fed[slot]) for slot, nodes in frontier.items()]
        return {
            slot: list(logits[-len(nodes) :])
            for (slot, nodes), logits in zip(frontier.items(), extend(batch), strict=True)
        }

    grow_together({slot: one.grower for slot, one in growing.items()}, score)
    return [one.finished(slot) for slot, one in growing.items()]


def grow_together(growers: Mapping[int, Grower], score: Score) -> None:
    """Expand all slots' drafts step by step, one drafter pass per step."""
    while frontier := {slot: nodes for slot, one in growers.items() if (nodes := one.frontier())}:
        for slot, rows in score(frontier).items():
            growers[slot].grow(rows)


@dataclass(slots=True)
class _Growing:
    """One slot's draft while it grows; ``row_of``: the scratch row of every computed node, ROOT included."""

    grower: Grower
    fed: int = 0
    row_of: dict[int, int] = field(default_factory=dict)

    def extension(self, slot: int, nodes: Sequence[int], feed: Sequence[int]) -> Extension:
        """New rows that score ``nodes``; in the first step, the rows of the fed tokens."""
        if list(nodes) == [ROOT]:
            self.fed = len(feed)
            self.row_of[ROOT] = self.fed - 1
            return Extension(slot, list(feed), range(-1, self.fed - 1))
        first = self.fed + len(self.row_of) - 1
        self.row_of.update({node: first + i for i, node in enumerate(nodes)})
        return Extension(slot, self.grower.ids(nodes), [self.row_of[self.grower.parents[node]] for node in nodes])

    def finished(self, slot: int) -> GrownDraft:
        """The draft with its rows."""
        draft, created = self.grower.finish()
        return GrownDraft(slot, draft, self.fed, tuple(self.row_of.get(number) for number in created))
