"""The app's composition root: jobs, store and queries, one set per process. The only ``cache_resource``.

Streamlit runs a page's script again at every click and may reimport this module after an edit; the set is therefore
held by the cache *and* by a module-level singleton, and released (worker stopped, file closed) before a new one is
made. Tests replace it with :func:`use`.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from core.errors import EngineFault, StorageUnavailable
from core.jobs.jobs import Jobs
from core.jobs.process_executor import ProcessExecutor
from core.pairs.checks import Checks
from core.pairs.inventory import Inventory
from core.pairs.presets import PairStatus, list_pairs
from storage.connect import default_path
from storage.export.background import Exports
from storage.queries import Runs
from storage.store import Store

PAIRS_FOR_S = 20.0
"""Seconds for which a listing of the pairs on this machine is reused."""

FLUSH_S = 5.0
"""Longest wait of a page for the store's writer, in seconds."""


@dataclass(slots=True)
class Services:
    """Services that a page may call. ``runs``, ``keeper`` and ``exports`` are None while nothing can be stored;
    ``trouble`` is the reason. ``flush`` waits, for at most the given seconds, until everything so far can be read from
    the store. ``gone``: ids of runs deleted here, which the queue may still hold in memory."""

    jobs: Jobs
    runs: Runs | None
    session: str
    pairs: Callable[[], Sequence[PairStatus]]
    keeper: Store | None
    exports: Exports | None
    trouble: Callable[[], str]
    flush: Callable[[], None]
    close: Callable[[], None]
    inventory: Inventory
    checks: Checks
    gone: set[str] = field(default_factory=set)


_lock = threading.Lock()
_held: Services | None = None
_fake: Services | None = None


def services() -> Services:
    """The services of this process, opened at the first call."""
    return _fake or _cached()


def use(fake: Services | None) -> None:
    """Replace the real services by ``fake`` (tests); None restores them."""
    global _fake
    _fake = fake


def reopen() -> None:
    """Close everything and open it again. Unfinished runs end as interrupted."""
    _cached.clear()


def _release(_: Any) -> None:
    global _held
    with _lock:
        held, _held = _held, None
    if held is not None:
        held.close()


@st.cache_resource(show_spinner="Opening SpecLens", on_release=_release)
def _cached() -> Services:
    global _held
    _release(None)
    with _lock:
        _held = open_services(default_path(), worker_command())
        return _held


atexit.register(_release, None)


def worker_command() -> Sequence[str]:
    """Command that starts the engine's process; ``SPECLENS_LOADER`` and ``SPECLENS_ENGINE`` (``module:function``)
    select another loader or engine, for tests."""
    command = [sys.executable, "-m", "core.worker"]
    for option, variable in (("--loader", "SPECLENS_LOADER"), ("--engine", "SPECLENS_ENGINE")):
        if value := os.environ.get(variable):
            command += [option, value]
    return command


def open_services(database: Path, command: Sequence[str]) -> Services:
    """Open store, queue and queries and connect them; exports and the worker's log are beside the ``database`` file.

    If the database can't be opened, the app decodes but stores nothing, and ``trouble`` is the reason. ``command``
    starts the engine's process.
    """
    folder, store, why = database.parent, None, ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(database)
    except StorageUnavailable as error:
        why = str(error)
    except OSError as error:
        why = f"The data folder {folder} can't be used: {error.strerror}. Set SPECLENS_DATA to another."
    session = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    log_file = folder / "worker.log" if folder.is_dir() else None
    jobs = Jobs(store, session, executor=ProcessExecutor(command, log_file=log_file))

    exports = Exports(store, folder / "exports") if store is not None else None

    def flush() -> None:
        if store is not None:
            with suppress(StorageUnavailable):  # ``trouble`` reports it
                store.flush(FLUSH_S)

    checks = Checks()

    def close() -> None:
        checks.close()
        with suppress(EngineFault):  # the worker may have ended already
            jobs.close()
        if exports is not None:
            exports.close()  # reads the store
        if store is not None:
            store.close()

    return Services(
        jobs=jobs,
        runs=Runs(store) if store is not None else None,
        session=session,
        pairs=_remembered(list_pairs),
        keeper=store,
        exports=exports,
        trouble=lambda: why if store is None else store.trouble or "",
        flush=flush,
        close=close,
        inventory=Inventory(),
        checks=checks,
    )


def _remembered(listing: Callable[[], Sequence[PairStatus]]) -> Callable[[], Sequence[PairStatus]]:
    """``listing`` with results cached for :data:`PAIRS_FOR_S` seconds, since a page calls it at every click."""
    kept: list[tuple[datetime, Sequence[PairStatus]]] = []

    def ask() -> Sequence[PairStatus]:
        now = datetime.now(UTC)
        if not kept or (now - kept[-1][0]).total_seconds() > PAIRS_FOR_S:
            kept[:] = [(now, listing())]
        return kept[-1][1]

    return ask
