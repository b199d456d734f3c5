"""What stands before a position: committed tokens that the host knows, then candidates that only the device knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core.device import longs


class Prefix:
    """The tokens before each candidate of a chain that is being drawn.

    ``committed`` are the host's; a drawn token is appended as it lies on the device, so that nobody waits for it.
    """

    def __init__(self, committed: Sequence[int]) -> None:
        self.committed = committed
        self.drawn: list[Tensor] = []
        self._ids: Tensor | None = None

    def append(self, token: Tensor) -> None:
        """Add a drawn token, int64 []."""
        self.drawn.append(token)

    def ids(self, device: torch.device) -> Tensor:
        """All tokens, int64 [1, L] on ``device``; made only when a penalty asks, and grown from then on."""
        known = longs(self.committed, device)[None] if self._ids is None else self._ids
        missing = self.drawn[known.shape[1] - len(self.committed) :]
        self._ids = torch.cat([known, torch.stack(missing)[None]], dim=1) if missing else known
        return self._ids
