"""Another model of the same vocabulary drafts, with a slot cache of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from core.cache.slots import SlotModel
from core.drafting.base import Want, grow_together
from core.drafting.draft import Draft
from core.drafting.growers import Grower
from core.records import ROOT


class SmallModel:
    """Drafts with ``model``. Committed tokens that its cache lacks yet (the last candidate of an accepted path, a
    correction, a bonus) are fed as a chain at the beginning of the next proposal."""

    def __init__(self, model: SlotModel, recomputed_share: float | None = None) -> None:
        self.model = model
        self.recomputed_share = recomputed_share
        self._known: dict[int, int] = {}
        self._rows: dict[int, list[int | None]] = {}
        self._pending: dict[int, list[int]] = {}

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Prefill the draft's cache."""
        self.model.open(slot, tokens)
        self._known[slot] = len(tokens)

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """Grow the wished shapes, one batched draft pass per step."""
        growers = {want.slot: want.grower() for want in wants}
        prefixes = {want.slot: want.prefix for want in wants}
        row_of: dict[int, dict[int, int]] = {slot: {} for slot in growers}
        self._pending = {slot: [] for slot in growers}

        def score(
            frontier: Mapping[int, Sequence[int]],
        ) -> Mapping[int, Sequence[Tensor]]:
            batch = [
                self._extension(slot, nodes, growers[slot], prefixes[slot], row_of[slot])
                for slot, nodes in frontier.items()
            ]
            return {
                slot: list(logits[-len(nodes) :])
                for (slot, nodes), logits in zip(frontier.items(), self.model.extend(batch), strict=True)
            }

        grow_together(growers, score)
        drafts = []
        for slot, one in growers.items():
            draft, created = one.finish()
            self._rows[slot] = [row_of[slot].get(number) for number in created]
            drafts.append(draft)
        return drafts

    def _extension(
        self,
        slot: int,
        nodes: Sequence[int],
        one: Grower,
        prefix: Sequence[int],
        row_of: dict[int, int],
    ) -> tuple[int, Sequence[int] | Tensor, Sequence[int]]:
        if list(nodes) == [ROOT]:
            pending = list(prefix[self._known[slot] :])
            self._pending[slot] = list(range(len(pending)))
            row_of[ROOT] = len(pending) - 1
            return slot, pending, range(-1, len(pending) - 1)
        first = len(self.model.cache.slots[slot].depths)
        row_of.update({node: first + i for i, node in enumerate(nodes)})
        return (
            slot,
            one.ids(nodes),
            [row_of[one.parents[node]] for node in nodes],
        )

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the fed tokens and the accepted nodes that were computed; the rest is fed next time."""
        if slot not in self._pending:
            return
        rows = self._pending.pop(slot)
        for node in path:
            row = self._rows[slot][node]
            if row is None:
                break
            rows = [*rows, row]
        self.model.keep(slot, rows)
        self._known[slot] += len(rows)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self.model.close(slot)
        self._known.pop(slot, None)
        self._pending.pop(slot, None)
