"""The app's composition root: jobs, store and queries, one set a process. The only ``cache_resource``.

Streamlit runs a page's script again at every click and may import this module anew after an edit; the set is therefore
held by the cache *and* by a module-level singleton, and released (worker stopped, file closed) before another is made.
Tests put a fake in its place with :func:`use`.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import streamlit as st

from core.errors import EngineFault, StorageUnavailable
from core.jobs.jobs import Jobs
from core.jobs.process_executor import ProcessExecutor
from core.jobs.queue import JobView
from core.pairs.checks import Checks, CheckView
from core.pairs.inventory import Inventory, KnownPair
from core.pairs.memory import DeviceMemory
from core.pairs.presets import PairStatus, list_pairs
from core.records import Fingerprint, Round
from core.results.traces import Burst
from core.types import Device, PairSpec, RunSpec
from storage.dictionary import Format, TableName
from storage.exports import Exports, ExportView
from storage.filters import RunFilter
from storage.labels import Labels
from storage.queries import Facets, Runs, StoredRun
from storage.store import Store

DATABASE = "speclens.duckdb"
PAIRS_FOR_S = 20.0
"""How long a listing of the pairs on this machine is believed, in seconds."""


FLUSH_S = 5.0
"""Longest a page waits for the store's writer, in seconds."""


class JobsLike(Protocol):
    """What the pages use of :class:`core.jobs.jobs.Jobs`."""

    def submit(self, spec: RunSpec, *, paused: bool = ...) -> str: ...
    def submit_together(self, specs: Sequence[RunSpec], *, paused: bool = ...) -> list[str]: ...
    def view(self, run_id: str) -> JobView | None: ...
    def rounds(self, run_id: str, start: int = 0) -> list[Round]: ...
    def active(self) -> list[JobView]: ...
    def cancel(self, run_id: str) -> bool: ...
    def pause(self, run_id: str) -> bool: ...
    def resume(self, run_id: str) -> bool: ...
    def step(self, run_id: str) -> bool: ...
    def load(self, pair: PairSpec) -> str: ...
    def loading(self) -> JobView | None: ...
    def loaded(self) -> Sequence[PairSpec]: ...
    def unload(self) -> None: ...


class InventoryLike(Protocol):
    """What the pages use of :class:`core.pairs.inventory.Inventory`."""

    def known(self, used: Sequence[str] = ...) -> Sequence[KnownPair]: ...
    def forget(self) -> None: ...
    def memory(self, device: Device) -> DeviceMemory: ...


class ChecksLike(Protocol):
    """What the pages use of :class:`core.pairs.checks.Checks`."""

    def start(self, name: str) -> None: ...
    def view(self, name: str) -> CheckView | None: ...
    def stop(self, name: str) -> None: ...


class RunsLike(Protocol):
    """What the pages use of :class:`storage.queries.Runs`."""

    def list(
        self, filter: RunFilter, sort: str = ..., descending: bool = ..., limit: int | None = ..., offset: int = ...
    ) -> list[StoredRun]: ...
    def count(self, filter: RunFilter) -> int: ...
    def get(self, run_id: str) -> StoredRun | None: ...
    def rounds(self, run_id: str, start: int = ..., limit: int | None = ...) -> Sequence[Round]: ...
    def plain_for(self, fingerprint: Fingerprint, session: str) -> StoredRun | None: ...
    def of_spec(self, spec: RunSpec, session: str) -> StoredRun | None: ...
    def bursts(self, run_id: str) -> Sequence[Burst]: ...
    def facets(self) -> Facets: ...
    def ids(self, filter: RunFilter, limit: int | None = ...) -> Sequence[str]: ...
    def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]: ...


class KeeperLike(Protocol):
    """What the pages use of :class:`storage.store.Store`: what people do with runs that are kept."""

    def rename(self, run_id: str, name: str | None) -> None: ...
    def annotate(self, run_id: str, note: str | None) -> None: ...
    def tag(self, run_ids: Sequence[str], add: Iterable[str] = ..., remove: Iterable[str] = ...) -> int: ...
    def archive(self, run_ids: Sequence[str], archived: bool = ...) -> int: ...
    def delete(self, run_ids: Sequence[str]) -> int: ...


class ExportsLike(Protocol):
    """What the pages use of :class:`storage.exports.Exports`."""

    def start(self, filter: RunFilter, table: TableName | None = ..., format: Format = ...) -> str: ...
    def view(self, export_id: str) -> ExportView | None: ...
    def stop(self, export_id: str) -> None: ...


@dataclass(slots=True)
class Services:
    """What a page may call. ``runs``, ``keeper`` and ``exports`` are None while nothing can be stored; ``trouble``
    says why. ``flush`` waits, for seconds at most, until what has happened can be read from the store. ``gone``: runs
    that were deleted here, which the queue may still hold in memory."""

    jobs: JobsLike
    runs: RunsLike | None
    session: str
    pairs: Callable[[], Sequence[PairStatus]]
    keeper: KeeperLike | None
    exports: ExportsLike | None
    trouble: Callable[[], str]
    flush: Callable[[], None]
    close: Callable[[], None]
    inventory: InventoryLike
    checks: ChecksLike
    gone: set[str] = field(default_factory=set)


_lock = threading.Lock()
_held: Services | None = None
_fake: Services | None = None


def services() -> Services:
    """The services of this process; opens them at the first call."""
    return _fake or _cached()


def use(fake: Services | None) -> None:
    """Put ``fake`` in place of the real services (tests); None takes it away again."""
    global _fake
    _fake = fake


def reopen() -> None:
    """Close everything and open it again, after what was in the way is gone. Ends runs in flight as interrupted."""
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
        _held = open_services(data_folder(), worker_command())
        return _held


atexit.register(_release, None)


def data_folder() -> Path:
    """Where runs are kept: ``SPECLENS_DATA``, else ``data`` beside the app."""
    return Path(os.environ.get("SPECLENS_DATA") or Path(__file__).resolve().parents[3] / "data")


def worker_command() -> Sequence[str]:
    """How the engine's process is started; ``SPECLENS_LOADER`` and ``SPECLENS_ENGINE`` (``module:function``) put
    another loader or engine into it, which tests use."""
    command = [sys.executable, "-m", "core.worker"]
    for option, variable in (("--loader", "SPECLENS_LOADER"), ("--engine", "SPECLENS_ENGINE")):
        if value := os.environ.get(variable):
            command += [option, value]
    return command


def open_services(folder: Path, command: Sequence[str]) -> Services:
    """Store, queue and queries wired together.

    A database that can't be opened leaves an app that decodes but keeps nothing, and says so. ``command`` starts the
    engine's process.
    """
    store, why = None, ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(folder / DATABASE)
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
            with suppress(StorageUnavailable):  # said by ``trouble``
                store.flush(FLUSH_S)

    checks = Checks()

    def close() -> None:
        checks.close()
        with suppress(EngineFault):  # a worker that is already gone is what closing wants
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
    """``listing``, asked again at most every :data:`PAIRS_FOR_S` seconds: a page asks at every click."""
    kept: list[tuple[datetime, Sequence[PairStatus]]] = []

    def ask() -> Sequence[PairStatus]:
        now = datetime.now(UTC)
        if not kept or (now - kept[-1][0]).total_seconds() > PAIRS_FOR_S:
            kept[:] = [(now, listing())]
        return kept[-1][1]

    return ask
