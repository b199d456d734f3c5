"""The open runs on the device: the loaded pairs that they share, and their turns, a round each, in one thread.

Imports neither torch nor the engine: the loader and the engine are named, so that the app's process, which needs only
the protocol's types, stays small.
"""

from __future__ import annotations

import gc
import importlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import BadInput
from core.faults import free_memory
from core.types import PairSpec
from core.worker.open_run import Engine, OpenRun
from core.worker.protocol import Begin, Cancel, Command, Loaded, Report, Shutdown, Unload

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


class Turns:
    """The open runs of one device, which share its loaded pairs. ``send`` takes commands from any thread; ``serve``
    decodes in the caller's thread and calls ``report`` there.

    Turns go round-robin: with A and B open their rounds are A, B, A, B … until one ends. A paused run keeps its place,
    so a step gets the next turn. Loader and engine are resolved at a run's first turn when given by name: importing
    torch takes seconds, which then count as that run's "starting the engine".
    """

    def __init__(self, loader: Loader | str, engine: Engine | str, report: Callable[[Report], None]) -> None:
        self._engine = engine
        self._report = report
        self._pairs = PairCache(
            loader if not isinstance(loader, str) else lambda spec, progress: resolve(loader)(spec, progress),
            lambda pairs: report(Loaded(pairs=pairs)),
        )
        self._changed = threading.Condition()  # guards everything below
        self._open: deque[OpenRun] = deque()  # the next turn goes to the first that is due
        self._unload = False
        self._stopping = False

    def send(self, command: Command) -> None:
        """Take a command. One for a run that is not open is ignored, also if a run of that id is opened later."""
        with self._changed:
            match command:
                case Begin(runs=runs):
                    self._open.extend(OpenRun(run, self._pairs, self._named_engine, self._report) for run in runs)
                case Unload():
                    self._unload = True
                case Shutdown():
                    self._stopping = True
                case _:
                    for run in self._open:
                        if run.run_id == command.run_id:
                            run.apply(command)
            if self._stopping:
                for run in self._open:
                    run.apply(Cancel(run_id=run.run_id))
            self._changed.notify_all()

    def serve(self) -> None:
        """Decode until shutdown, which ends every open run as cancelled."""
        while (run := self._next()) is not None:
            if not run.turn():
                with self._changed:
                    self._open.remove(run)

    def _next(self) -> OpenRun | None:
        """Wait for a run that is due and move it to the end of the rotation; None after shutdown, once none is left."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unload or self._stopping or self._due() is not None)
                unload, self._unload = self._unload, False
                run = self._due()
                if run is not None:
                    self._open.remove(run)
                    self._open.append(run)
            if unload:
                self._pairs.unload()
            if run is not None or self._stopping:
                return run

    def _due(self) -> OpenRun | None:
        return next((run for run in self._open if run.due), None)

    def _named_engine(self) -> Engine:
        return resolve(self._engine) if isinstance(self._engine, str) else self._engine
