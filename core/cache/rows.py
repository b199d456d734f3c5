"""Scratch rows of one slot, as passes are asked for them: rows that are there, and rows that are yet to be added.

A scratch row is numbered from the end of its slot's committed region; ROOT as a parent is that end.
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
    each, an earlier row or an earlier one of these."""

    slot: int
    tokens: Sequence[int] | Tensor
    parents: Sequence[int]
