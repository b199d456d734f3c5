"""Scratch rows of one slot, as arguments of a pass: rows that exist, and rows still to be added.

Scratch rows are numbered from the end of the slot's committed region; ROOT as a parent is that end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ScratchRows:
    """Contiguous scratch ``rows`` of one ``slot`` that a pass computes."""

    slot: int
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Extension:
    """New scratch rows of one ``slot``: n token ids, on the host or on the device (int64 [n]), and the parent row of
    each: an existing row or an earlier new one."""

    slot: int
    tokens: Sequence[int] | Tensor
    parents: Sequence[int]
