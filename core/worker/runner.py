"""Opens runs with a named loader and engine, in whatever process.

Imports neither torch nor the engine itself: both come with the loader and the engine that are named, so that the app's
process, which only needs the types, stays small.
"""

from __future__ import annotations

import importlib
from typing import Any

from core.errors import BadInput
from core.worker.open_run import Engine, OpenRun, Tell
from core.worker.pair_cache import Loader, PairCache
from core.worker.protocol import Run

LOADER = "core.models.load:load_pair"
ENGINE = "core.decoding.engine:cycles"


def resolve(name: str) -> Any:
    """The object that ``module:attribute`` names; raises BadInput when there is none."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise BadInput(f"{name!r} names no function: write module:function, such as {LOADER}.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"{name!r} can't be imported ({error}): name a function of a module that is installed."
        ) from error


class Runner:
    """Runs of one device: they share its pairs. Names are resolved at a run's first turn: importing torch takes
    seconds, which belong under that run's "starting the engine"."""

    def __init__(self, loader: Loader | str = LOADER, engine: Engine | str = ENGINE) -> None:
        self._engine = engine
        self._pairs = PairCache(
            loader if not isinstance(loader, str) else lambda spec, progress: resolve(loader)(spec, progress)
        )

    def open(self, run: Run, tell: Tell) -> OpenRun:
        """A run before its first turn."""
        return OpenRun(run, self._pairs, self._named_engine, tell)

    def unload(self) -> None:
        """Free every loaded pair; that of an open run when it is over."""
        self._pairs.unload()

    def _named_engine(self) -> Engine:
        return resolve(self._engine) if isinstance(self._engine, str) else self._engine
