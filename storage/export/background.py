"""Exports in the background: each is written by a thread, piece by piece, and reports its progress."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from core.errors import BadInput, SpecLensError, StorageUnavailable
from storage.connect import refusal
from storage.export.bundle import write_bundle, write_table
from storage.export.dictionary import TABLES, Format, TableName
from storage.export.files import PARTIAL, Files
from storage.export.readings import rows_of
from storage.filters import RunFilter
from storage.store import Store

log = logging.getLogger(__name__)

Status = Literal["running", "ready", "failed", "stopped"]

MAX_DOWNLOAD = 64 * 2**20
"""Largest file that a page offers as a download, in bytes: Streamlit holds a download in memory. A larger file stays in
the folder, and the page shows its path."""

KEEP = 8
"""Finished exports that are remembered; the files of older ones are removed, except those too large to download."""

MAX_AT_ONCE = 2
"""Most exports written at the same time."""


@dataclass(frozen=True, slots=True)
class ExportView:
    """An export at one moment: ``rows`` of ``total`` are written. ``seconds``: since it began, or that it took;
    ``size`` in bytes once ready; ``problem``: a sentence when it failed."""

    export_id: str
    path: Path
    status: Status
    rows: int
    total: int
    seconds: float
    size: int = 0
    problem: str = ""

    @property
    def share(self) -> float:
        """Share that is written, in [0, 1]."""
        return 1.0 if self.status == "ready" else min(1.0, self.rows / self.total) if self.total else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left at the pace so far; None before the first rows."""
        return self.seconds * (1.0 - self.share) / self.share if self.share > 0.0 else None

    @property
    def large(self) -> bool:
        """True when the file is too large for a download and stays at ``path``."""
        return self.size > MAX_DOWNLOAD


class _Stopped(Exception):
    """Raised in an export's thread to end it after :meth:`Exports.stop`."""


class Exports:
    """Exports of one store into ``folder``, which is created at the first export. Thread-safe."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._lock = threading.Lock()  # guards everything below
        self._views: OrderedDict[str, ExportView] = OrderedDict()
        self._began: dict[str, float] = {}
        self._stopping: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}
        for left in folder.glob(f"speclens-*{PARTIAL}") if folder.is_dir() else ():
            with suppress(OSError):
                left.unlink()

    def start(self, filter: RunFilter, table: TableName | None = None, format: Format = "csv") -> str:
        """Starts to write one table, or with None the bundle of all, of every run that matches. Returns its id.

        Raises BadInput while :data:`MAX_AT_ONCE` are being written, StorageUnavailable when the folder cannot be
        created.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(f"{self._folder} cannot be made for exports: {refusal(error)}.") from error
        export_id = secrets.token_hex(8)
        suffix = "zip" if table is None else format
        name = f"speclens-{table or format}-{datetime.now():%Y%m%d-%H%M%S}-{export_id[:4]}.{suffix}"
        with self._lock:
            if len(self._threads) >= MAX_AT_ONCE:
                raise BadInput(f"{MAX_AT_ONCE} exports are being written: wait for one, or stop it.")
            self._began[export_id] = time.monotonic()
            self._views[export_id] = ExportView(export_id, self._folder / name, "running", 0, 0, 0.0)
            work = threading.Thread(target=self._write, args=(export_id, filter, table, format), name="export")
            work.daemon = True
            self._threads[export_id] = work
        work.start()
        return export_id

    def view(self, export_id: str) -> ExportView | None:
        """The export's state now; None when its id is unknown or no longer remembered."""
        with self._lock:
            view = self._views.get(export_id)
            if view is None or view.status != "running":
                return view
            return replace(view, seconds=time.monotonic() - self._began[export_id])

    def stop(self, export_id: str) -> None:
        """Ends an export after the piece that is being written, and removes its file."""
        with self._lock:
            if export_id in self._threads:
                self._stopping.add(export_id)

    def close(self) -> None:
        """Ends the running exports and removes the files that were offered as downloads."""
        with self._lock:
            self._stopping.update(self._threads)
            waiting = list(self._threads.values())
        for thread in waiting:
            thread.join()
        with self._lock:
            for view in self._views.values():
                _remove(view)
            self._views.clear()

    def _write(self, export_id: str, filter: RunFilter, table: TableName | None, format: Format) -> None:
        path = self._views[export_id].path
        try:
            tables = TABLES if table is None else (table,)
            self._change(export_id, total=sum(rows_of(self._store, filter, each) for each in tables))
            with Files(self._folder) as files:
                target = files.new(path.name)
                if table is None:
                    write_bundle(self._store, filter, target, True, format, lambda rows: self._count(export_id, rows))
                else:
                    bom = format == "csv"  # spreadsheets read a CSV as UTF-8 only with a byte order mark
                    write_table(
                        self._store, filter, table, format, target, bom, lambda rows: self._count(export_id, rows)
                    )
            self._end(export_id, "ready", size=path.stat().st_size)
        except _Stopped:
            self._end(export_id, "stopped")
        except SpecLensError as error:
            self._end(export_id, "failed", problem=str(error))
        except Exception as error:
            log.exception("storage: an export failed")
            self._end(export_id, "failed", problem=f"The export failed ({type(error).__name__}): try again.")

    def _count(self, export_id: str, rows: int) -> None:
        with self._lock:
            if export_id in self._stopping:
                raise _Stopped
            view = self._views[export_id]
            self._views[export_id] = replace(view, rows=view.rows + rows)

    def _change(self, export_id: str, total: int) -> None:
        with self._lock:
            self._views[export_id] = replace(self._views[export_id], total=total)

    def _end(self, export_id: str, status: Status, size: int = 0, problem: str = "") -> None:
        with self._lock:
            took = time.monotonic() - self._began.pop(export_id)
            view = replace(self._views[export_id], status=status, seconds=took, size=size, problem=problem)
            self._views[export_id] = view
            self._views.move_to_end(export_id)
            self._threads.pop(export_id)
            self._stopping.discard(export_id)
            ended = [view for view in self._views.values() if view.status != "running"]
            for old in ended[:-KEEP]:
                _remove(self._views.pop(old.export_id))


def _remove(view: ExportView) -> None:
    if view.status == "ready" and not view.large:
        with suppress(OSError):
            view.path.unlink(missing_ok=True)
