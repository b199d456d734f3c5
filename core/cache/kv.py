"""The slot KV cache: each slot has a *committed region* followed by a *scratch region* (design.md "Slots").

A pass appends nodes to a slot's scratch; a node sees the committed region, its own ancestors and itself, never a
sibling; its position is committed length + depth. ``keep`` moves an accepted path's rows to the front of the scratch
region and sets the length: rollback is free, whatever the context's length. Rows outside the two regions are dead:
their contents affect nothing.

Only the library's public cache and mask interfaces are used: a ``Cache`` of our own for each pass, a 4-D mask and
explicit position ids. Shapes: S slots, B slots in a pass, N nodes per slot (padded), T cache rows, H heads, D head
width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from core.cache.rows import ScratchRows
from core.device import longs, sent
from core.records import ROOT


@dataclass(slots=True)
class Slot:
    """Bookkeeping of one sequence, in rows."""

    committed: int = 0
    opened: int = 0
    """Tokens with which the sequence was opened, the first root included."""
    depths: list[int] = field(default_factory=list)
    ancestry: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    """[n, n]: which scratch rows each scratch row sees, itself included."""
    dirty: int = 0
    """Rows from the end up to this one may hold leftovers."""

    @property
    def end(self) -> int:
        """First row after the scratch region."""
        return self.committed + len(self.depths)


@dataclass(frozen=True, slots=True)
class Block:
    """Cache rows ``start`` … ``stop`` − 1 of one slot."""

    slot: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Rows that one forward pass writes and rows that it may see.

    ``slots`` [B]; ``batch_index``, ``query_index``, ``row_index`` list the nodes to write: the real nodes, or all B·N
    in a pass padded for recording; ``positions`` [B, N]; ``lengths`` [B, N]: how long a request the row belongs to,
    its prompt or up to the row, whichever is longer; ``visible`` [B, N, T] bool; ``key_positions`` [B, T].
    """

    slots: Tensor
    adjoining: slice | None
    """The same slots as a slice when they are consecutive: their rows are then read without a copy."""
    block: Block | None
    """The rows that a pass over one slot writes; None in a recorded pass, whose rows change between replays."""
    batch_index: Tensor
    query_index: Tensor
    row_index: Tensor
    positions: Tensor
    lengths: Tensor
    visible: Tensor
    key_positions: Tensor

    @property
    def length(self) -> int:
        """Cache rows in view, T."""
        return self.visible.shape[-1]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that differ between passes over the same slots padded to the same size."""
        return (
            self.slots,
            self.batch_index,
            self.query_index,
            self.row_index,
            self.positions,
            self.lengths,
            self.visible,
            self.key_positions,
        )

    def over(self, tensors: Sequence[Tensor]) -> Pass:
        """This pass with other :attr:`tensors`."""
        slots, batch_index, query_index, row_index, positions, lengths, visible, key_positions = tensors
        return replace(
            self,
            slots=slots,
            batch_index=batch_index,
            query_index=query_index,
            row_index=row_index,
            positions=positions,
            lengths=lengths,
            visible=visible,
            key_positions=key_positions,
        )

    def mask(self, window: int | None) -> Tensor:
        """Mask [B, 1, N, T] bool for one kind of attention; ``window``: width of a sliding window, in positions."""
        if window is None:
            return self.visible[:, None]
        near = self.positions[:, :, None] - self.key_positions[:, None, :] < window
        return (self.visible & near)[:, None]


@dataclass(frozen=True, slots=True)
class _Sight:
    """Positions and visible rows of a pass's nodes, on the host; shapes as in :class:`Pass`."""

    positions: Tensor
    lengths: Tensor
    key_positions: Tensor
    visible: Tensor


@dataclass(frozen=True, slots=True)
class _Places:
    """Index in the batch, index among the slot's nodes, and cache row of each node that a pass writes."""

    batch: list[int]
    query: list[int]
    row: list[int]


@dataclass(slots=True)
class LayerRows:
    """Rows of one layer, ``keys`` and ``values`` [S, H, T, D], allocated at the first write."""

    slots: int
    capacity: int
    """Rows of a slot, the spare one included."""
    keys: Tensor | None = None
    values: Tensor | None = None

    def write(self, now: Pass, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Write the rows [B, H, N, D] of a pass; return its rows in view [B, H, T, D]."""
        if self.keys is None or self.values is None:
            self.keys, self.values = self._zeros(key_states), self._zeros(value_states)
        if now.block is not None:  # one slot: its rows are contiguous, and a slice costs a tenth of indexing
            self.keys[now.block.slot, :, now.block.start : now.block.stop] = key_states[0]
            self.values[now.block.slot, :, now.block.start : now.block.stop] = value_states[0]
        else:
            to = (now.slots[now.batch_index], slice(None), now.row_index)
            self.keys[to] = key_states[now.batch_index, :, now.query_index]
            self.values[to] = value_states[now.batch_index, :, now.query_index]
        view = now.slots if now.adjoining is None else now.adjoining
        return self.keys[view, :, : now.length], self.values[view, :, : now.length]

    def _zeros(self, states: Tensor) -> Tensor:
        return states.new_zeros(self.slots, states.shape[1], self.capacity, states.shape[3])

    def move(self, slot: int, source: Tensor, start: int) -> None:
        """Copy the rows ``source`` [n] of a slot to ``start`` … ``start`` + n − 1."""
        if self.keys is not None and self.values is not None:
            stop = start + len(source)
            self.keys[slot, :, start:stop] = self.keys[slot].index_select(1, source)
            self.values[slot, :, start:stop] = self.values[slot].index_select(1, source)

    def zero(self, slot: int, start: int, stop: int) -> None:
        """Overwrite dead rows with zeros."""
        if self.keys is not None and self.values is not None:
            self.keys[slot, :, start:stop] = 0.0
            self.values[slot, :, start:stop] = 0.0


class PassLayer(CacheLayerMixin):
    """Layer of the library's cache interface over one layer's rows, for one pass."""

    def __init__(self, rows: LayerRows, now: Pass) -> None:
        super().__init__()
        self._rows = rows
        self._now = now

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: :class:`LayerRows` allocates at the first write."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the pass's rows [B, H, N, D]; return the rows in view [B, H, T, D]."""
        return self._rows.write(self._now, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(rows in view, offset); the mask itself is given, so nothing is derived from these."""
        return self._now.length, 0

    def get_seq_length(self) -> int:
        """Rows in view."""
        return self._now.length

    def get_max_length(self) -> int:
        """Rows a slot can hold."""
        return self._rows.capacity


class SlotCache:
    """Rows of all layers for S slots of ``capacity`` rows each.

    A slot's committed rows are 0 … committed−1; its scratch rows follow. ``spare`` = 1 adds a row that is never in
    view, to which the padding of a pass is written.
    """

    def __init__(self, layers: int, slots: int, capacity: int, device: torch.device, spare: int = 0) -> None:
        self.capacity = capacity
        self.slots = [Slot() for _ in range(slots)]
        self.device = device
        self.rows = [LayerRows(slots, capacity + spare) for _ in range(layers)]

    def during(self, now: Pass) -> Cache:
        """Cache object for the library's forward, which writes and returns the rows of this pass."""
        return Cache(layers=[PassLayer(rows, now) for rows in self.rows])

    def open(self, slot: int, opened: int = 0) -> None:
        """Start a new sequence in ``slot``, of ``opened`` tokens at first; its old rows become dead."""
        dirty = max(self.slots[slot].dirty, self.slots[slot].end)
        self.slots[slot] = Slot(opened=opened, dirty=dirty)

    def append(self, slot: int, parents: Sequence[int]) -> list[int]:
        """Add nodes to the scratch region and return their scratch rows. ``parents`` are scratch rows (ROOT: the end
        of the committed region): existing rows or earlier nodes of this call.

        Raises IndexError when the slot has no room: callers limit drafts to the context and size the cache by it.
        """
        state = self.slots[slot]
        first, added = len(state.depths), len(parents)
        if state.end + added > self.capacity:
            raise IndexError(
                f"slot {slot} holds {self.capacity} rows; {state.end} are in use and {added} more don't fit"
            )
        if first == 0 and list(parents) == list(range(-1, added - 1)):  # a chain, as prompts are
            state.ancestry = torch.ones(added, added, dtype=torch.bool).tril_()
            state.depths = list(range(added))
            return list(range(added))
        ancestry = torch.eye(first + added, dtype=torch.bool)
        ancestry[:first, :first] = state.ancestry
        for row, parent in enumerate(parents, start=first):
            if parent != ROOT:
                ancestry[row] |= ancestry[parent]
            state.depths.append(0 if parent == ROOT else state.depths[parent] + 1)
        state.ancestry = ancestry
        return list(range(first, first + added))

    def extent(self, wanted: Sequence[ScratchRows]) -> tuple[int, int]:
        """(N, T) of a pass over these scratch rows: nodes computed per slot, and rows in view."""
        return max(len(one.rows) for one in wanted), max(self.slots[one.slot].end for one in wanted)

    def plan(self, wanted: Sequence[ScratchRows], padded: tuple[int, int] | None = None) -> Pass:
        """Plan the pass that computes the given contiguous scratch rows of each slot.

        With ``padded`` = (N, T) the pass has that shape whatever it computes: padding nodes see row 0 and are written
        to the spare row.
        """
        nodes, length = padded or self.extent(wanted)
        self._clean(wanted, length)
        sight = self._sight(wanted, nodes, length)
        places = self._places(wanted, nodes if padded else 0)
        slots = [one.slot for one in wanted]
        alone = len(slots) == 1 and not padded
        return Pass(
            slots=self._long(slots),
            adjoining=slice(slots[0], slots[-1] + 1) if slots == list(range(slots[0], slots[-1] + 1)) else None,
            block=Block(slots[0], places.row[0], places.row[-1] + 1) if alone else None,
            batch_index=self._long(places.batch),
            query_index=self._long(places.query),
            row_index=self._long(places.row),
            positions=sent(sight.positions, self.device),
            lengths=sent(sight.lengths, self.device),
            visible=sent(sight.visible, self.device),
            key_positions=sent(sight.key_positions, self.device),
        )

    def _sight(self, wanted: Sequence[ScratchRows], nodes: int, length: int) -> _Sight:
        batch = len(wanted)
        sight = _Sight(
            positions=torch.zeros(batch, nodes, dtype=torch.long),
            lengths=torch.zeros(batch, nodes, dtype=torch.long),
            key_positions=torch.arange(length).expand(batch, length).clone(),
            visible=torch.zeros(batch, nodes, length, dtype=torch.bool),
        )
        sight.visible[:, :, 0] = True  # padded queries must see something finite; their results are never read
        for b, one in enumerate(wanted):
            state, rows = self.slots[one.slot], list(one.rows)
            start, end = state.committed, state.end
            depths = torch.tensor(state.depths, dtype=torch.long) + start
            sight.key_positions[b, start:end] = depths
            sight.positions[b, : len(rows)] = depths[rows]
            sight.lengths[b] = (sight.positions[b] + 1).clamp_(min=state.opened)
            sight.visible[b, : len(rows), 0] = start > 0
            sight.visible[b, : len(rows), :start] = True
            sight.visible[b, : len(rows), start:end] = state.ancestry[rows]
        return sight

    def _places(self, wanted: Sequence[ScratchRows], padded: int) -> _Places:
        """Places to which the nodes are written; padding up to ``padded`` nodes per slot goes to the spare row."""
        places = _Places([], [], [])
        for b, one in enumerate(wanted):
            rows = [self.slots[one.slot].committed + row for row in one.rows]
            rows += [self.capacity] * (padded - len(rows))
            places.batch.extend([b] * len(rows))
            places.query.extend(range(len(rows)))
            places.row.extend(rows)
        return places

    def arrange(self, slot: int, rows: Sequence[int]) -> None:
        """Reduce scratch to ``rows`` in this order (parents before children); its other rows become dead."""
        state = self.slots[slot]
        state.dirty = max(state.dirty, state.end)
        self._move(slot, rows)
        order = list(rows)
        state.ancestry = state.ancestry[order][:, order]
        state.depths = [state.depths[row] for row in order]

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Commit the scratch rows of ``path``, root first; the rest of the scratch region becomes dead."""
        state = self.slots[slot]
        state.dirty = max(state.dirty, state.end)
        self._move(slot, path)
        state.committed += len(path)
        state.depths = []
        state.ancestry = torch.zeros(0, 0, dtype=torch.bool)

    def _move(self, slot: int, rows: Sequence[int]) -> None:
        if list(rows) == list(range(len(rows))):
            return  # already in place, as for every chain
        start = self.slots[slot].committed
        source = self._long([start + row for row in rows])
        for layer in self.rows:
            layer.move(slot, source, start)

    def _clean(self, wanted: Sequence[ScratchRows], length: int) -> None:
        """Zero the dead rows that are in view: a masked row has weight 0, but 0 × NaN would still be NaN."""
        for one in wanted:
            state = self.slots[one.slot]
            start, stop = state.end, min(state.dirty, length)
            if start < stop:
                for layer in self.rows:
                    layer.zero(one.slot, start, stop)
                state.dirty = start if state.dirty <= length else state.dirty

    def _long(self, values: Sequence[int]) -> Tensor:
        return longs(values, self.device)
