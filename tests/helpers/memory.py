"""Memory of this process while it works on a store."""

from __future__ import annotations

import threading

import psutil

from storage.store import Store


class Memory:
    """Growth of this process's memory within a ``with`` block, in bytes. ``grew``: peak growth of resident memory;
    ``cache``: growth of DuckDB's own buffers (pages of the file, bounded by its ``memory_limit``)."""

    def __init__(self, store: Store, every_s: float = 0.02) -> None:
        self._store = store
        self._process = psutil.Process()
        self._over = threading.Event()
        self._every_s = every_s
        self._thread = threading.Thread(target=self._watch)
        self.grew = self.cache = 0

    def __enter__(self) -> Memory:
        self._before = self._process.memory_info().rss
        self._held = self._buffers()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.cache = self._buffers() - self._held

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            self.grew = max(self.grew, self._process.memory_info().rss - self._before)

    def _buffers(self) -> int:
        with self._store.database.read() as connection:
            return int(connection.exec_driver_sql("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").scalar_one())
