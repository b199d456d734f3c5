"""The pairs in the worker's memory: a pair that an open run uses stays, an unused one makes room for the next load."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.faults import free_memory
from core.types import PairSpec

Loader = Callable[[PairSpec, Callable[[str, float], None]], Any]


@dataclass(slots=True)
class _Entry:
    """A loaded pair and the ids of the runs that use it. ``unwanted``: to be freed once no run uses it."""

    pair: Any
    users: set[str] = field(default_factory=set)
    unwanted: bool = False


class PairCache:
    """Loaded pairs by their spec. ``changed`` receives the specs after every change. Not thread-safe: the device's
    thread owns it."""

    def __init__(self, load: Loader, changed: Callable[[tuple[PairSpec, ...]], None]) -> None:
        self._load = load
        self._changed = changed
        self._entries: dict[PairSpec, _Entry] = {}
        self._settled = True

    def get(self, spec: PairSpec, user: str, progress: Callable[[str, float], None]) -> Any:
        """The pair of ``spec`` for the run ``user`` until it calls ``release``; loaded if it is not in memory.

        Raises what the loader raises; the run then uses nothing.
        """
        if spec not in self._entries:
            self._drop_where(lambda entry: not entry.users)
            self._entries[spec] = _Entry(self._load(spec, progress))
            self._changed(tuple(self._entries))
            self._settled = False
            self._settle()
        entry = self._entries[spec]
        entry.users.add(user)
        entry.unwanted = False
        return entry.pair

    def release(self, user: str) -> None:
        """End the run's use of its pair. The pair stays for the next run unless it was to be unloaded."""
        for spec in self._entries:  # no variable may hold an entry here: it would keep the pair in memory
            self._entries[spec].users.discard(user)
        self._drop_where(lambda entry: entry.unwanted and not entry.users)
        self._settle()

    def unload(self) -> None:
        """Free every pair; a pair in use is freed when its last run ends."""
        for spec in self._entries:
            self._entries[spec].unwanted = True
        self._drop_where(lambda entry: not entry.users)

    def _drop_where(self, condition: Callable[[_Entry], bool]) -> None:
        kept = {spec: entry for spec, entry in self._entries.items() if not condition(entry)}
        if len(kept) == len(self._entries):
            return
        self._entries = kept
        gc.unfreeze()
        free_memory()
        self._settled = False
        self._changed(tuple(kept))

    def _settle(self) -> None:
        """Exclude the long-lived weights and modules from later collections. Only while no run is open: the caches of
        an open run would be excluded with them."""
        if self._settled or any(entry.users for entry in self._entries.values()):
            return
        gc.collect()
        if self._entries:
            gc.freeze()
        self._settled = True
