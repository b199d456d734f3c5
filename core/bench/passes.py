"""What a peer's network was really asked to compute: how deep and how wide each pass was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pass:
    """``layers`` that ran, ``width`` tokens per row, and the ``last`` token of the first row."""

    layers: int
    width: int
    last: int


@contextmanager
def passes(network: Any) -> Iterator[list[Pass]]:
    """Collects the network's passes for the body."""
    seen: list[Pass] = []

    def note(module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        ids = arguments[0] if arguments else keywords["input_ids"]
        seen.append(Pass(module.config.num_hidden_layers, ids.shape[1], int(ids[0, -1])))

    handle = network.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
