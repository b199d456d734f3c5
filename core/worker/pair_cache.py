"""Loaded pairs: one that an open run uses stays, one that no run uses goes when another must be loaded."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.faults import free_memory
from core.types import PairSpec

Loader = Callable[[PairSpec, Callable[[str, float], None]], Any]


@dataclass(slots=True)
class _Loaded:
    """A pair in memory, and the ids of the runs that use it. ``unwanted``: goes as soon as nobody uses it."""

    pair: Any
    users: set[str] = field(default_factory=set)
    unwanted: bool = False


class PairCache:
    """Pairs by their spec. Not thread-safe: the device's thread owns it."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._loaded: dict[PairSpec, _Loaded] = {}
        self._settled = True

    def get(self, spec: PairSpec, user: str, progress: Callable[[str, float], None]) -> Any:
        """The pair of ``spec`` for the run ``user`` until it calls ``release``; loaded unless it is at hand.

        Raises what the loader raises; the run uses nothing then.
        """
        if spec not in self._loaded:
            self._drop_where(lambda one: not one.users)
            self._loaded[spec] = _Loaded(self._load(spec, progress))
            self._settled = False
            self._settle()
        loaded = self._loaded[spec]
        loaded.users.add(user)
        loaded.unwanted = False
        return loaded.pair

    def release(self, user: str) -> None:
        """The run is over. Its pair stays for the next one, unless it was to be unloaded."""
        for spec in self._loaded:  # never by a name for the pair itself, which would keep it here
            self._loaded[spec].users.discard(user)
        self._drop_where(lambda one: one.unwanted and not one.users)
        self._settle()

    def unload(self) -> None:
        """Give the memory of every pair back; that of pairs in use when their runs are over."""
        for spec in self._loaded:
            self._loaded[spec].unwanted = True
        self._drop_where(lambda one: not one.users)

    def _drop_where(self, condition: Callable[[_Loaded], bool]) -> None:
        kept = {spec: one for spec, one in self._loaded.items() if not condition(one)}
        if len(kept) == len(self._loaded):
            return
        self._loaded = kept
        gc.unfreeze()
        free_memory()
        self._settled = False

    def _settle(self) -> None:
        """Weights and modules live long: keep every later collection from walking them. Only while no run is open,
        whose caches would be kept from collection with them."""
        if self._settled or any(one.users for one in self._loaded.values()):
            return
        gc.collect()
        if self._loaded:
            gc.freeze()
        self._settled = True
