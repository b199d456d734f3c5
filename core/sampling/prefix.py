"""The tokens before a position: committed tokens on the host, then candidates that are only on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core.device import longs


class Prefix:
    """Tokens before the next candidate of a chain that is being drawn.

    ``committed`` tokens are on the host; a drawn token stays on the device, so that the host doesn't wait for it.
    """

    def __init__(self, committed: Sequence[int]) -> None:
        self.committed = committed
        self.drawn: list[Tensor] = []
        self._ids: Tensor | None = None

    def append(self, token: Tensor) -> None:
        """Add a drawn token, int64 []."""
        self.drawn.append(token)

    def ids(self, device: torch.device) -> Tensor:
        """All tokens, int64 [1, L] on ``device``; built at the first call, which only penalties make, then extended."""
        known = longs(self.committed, device)[None] if self._ids is None else self._ids
        missing = self.drawn[known.shape[1] - len(self.committed) :]
        self._ids = torch.cat([known, torch.stack(missing)[None]], dim=1) if missing else known
        return self._ids
