"""Linear modules packed for the machine, and the way back to the network's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def original_linears(network: Any) -> Iterator[None]:
    """The network's own ``nn.Linear`` modules for the body; nothing is packed yet, so nothing changes."""
    yield
