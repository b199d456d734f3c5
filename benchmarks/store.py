"""``python -m benchmarks.store``: the speed of History over many runs, and of exports.

Fills a database (``benchmarks/fill.py``), then measures the queries of the pages. Prints Markdown tables. Exit code 1
when History takes longer than :data:`TARGET_S` to open.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.fill import fill
from storage.export.bundle import export_file
from storage.export.dictionary import FORMATS, TABLES, Format, TableName
from storage.filters import RunFilter
from storage.queries import Runs
from storage.store import Store
from tests.helpers.memory import Memory

TARGET_S = 1.0
"""Target: longest time for History to open (the store, its first page, count and facets), in seconds."""

BYTES_PER_CANDIDATE = 200
"""Disk space to reserve per candidate, with its share of everything else (150 were measured), in bytes."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def measure(
    run_count: Annotated[int, typer.Option("--runs", min=50, help="Runs to fill in.")] = 10_000,
    candidate_count: Annotated[int, typer.Option("--candidates", min=0, help="Candidates to fill in.")] = 5_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="How often each thing is measured.")] = 7,
    db: Annotated[
        Path | None, typer.Option(help="A filled database to measure, or where to fill one and keep it.")
    ] = None,
    export: Annotated[bool, typer.Option(help="Measure exports too.")] = True,
    child: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Fills a database and measures the queries of the pages."""
    if child:
        assert db is not None
        print(json.dumps(_export(db, child)))
        return
    folder = Path(tempfile.mkdtemp(prefix="speclens-bench-")) if db is None else None
    path = (folder / "speclens.duckdb") if folder else db
    assert path is not None
    try:
        _filled(path, run_count, candidate_count)
        opened_s = _pages(path, repeat)
        if export:
            _exports(path)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    if opened_s > TARGET_S:
        print(f"History took {opened_s:.2f} s to open; the aim is {TARGET_S:.0f} s.", file=sys.stderr)
        raise typer.Exit(1)


def _filled(path: Path, run_count: int, candidate_count: int) -> None:
    if not path.exists():
        need, free = candidate_count * BYTES_PER_CANDIDATE, shutil.disk_usage(path.parent).free
        if free < 2 * need:
            print(f"{path.parent} has {free / 1e9:.1f} GB free; {2 * need / 1e9:.1f} GB are wanted.", file=sys.stderr)
            raise typer.Exit(1)
        made = fill(path, run_count, candidate_count, lambda line: print(line, end="\r", file=sys.stderr, flush=True))
        print(f"Filled in {made.seconds:.0f} s.\n")
    with Store(path) as store, store.database.read() as connection:
        held = {
            name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()
            for name in ("runs", "rounds", "candidates", "positions", "top_tokens")
        }
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in held.items())
    print(f"{counts}; {path.stat().st_size / 1e6:,.0f} MB. {os.cpu_count()} cores, Python {platform.python_version()}.")
    print(f"Load average before: {os.getloadavg()[0]:.1f}.\n")


def _pages(path: Path, repeat: int) -> float:
    """Prints the table of page queries; returns the median time that History takes to open, in seconds."""
    print("| What | median | slowest |\n|---|---:|---:|")

    def history() -> None:
        with Store(path) as store:
            _first_page(Runs(store))

    def cold() -> None:
        _forget(path)
        history()

    _row("Open the store, first page of 100, count, facets: file not in memory", cold, repeat)
    opened_s = _row("the same, file in memory", history, repeat)
    with Store(path) as store:
        runs = Runs(store)
        ids = [run.run_id for run in runs.list(limit=50, sort="run_id", offset=max(0, runs.count() // 2))]
        word = runs.list(limit=1)[0].spec.request.prompt.split(":")[0]
        _row("First page of 100, count, facets (store open)", lambda: _first_page(runs), repeat)
        _row("First page of 25, count, facets (store open)", lambda: _first_page(runs, 25), repeat)
        _row("Text search: page and count", lambda: _found(runs, RunFilter(text=word)), repeat)
        _row("Text search that finds nothing: page and count", lambda: _found(runs, RunFilter(text="no such")), repeat)
        _row("Filter by tag: page and count", lambda: _found(runs, RunFilter(tag="tag 5")), repeat)
        _row("Sort by tokens per second", lambda: runs.list(sort="tokens_per_second"), repeat)
        _row("Sort by prompt, a page in the middle", lambda: runs.list(sort="prompt", offset=runs.count() // 2), repeat)
        _row("One run's 30 first rounds", lambda: runs.rounds(ids[0], 0, 30), repeat)
        _row("One run's whole rounds, mean of 5 kinds", lambda: [runs.rounds(one) for one in ids[:5]], repeat, of=5)
        _row("Rename a run", lambda: store.rename(ids[0], "A name"), repeat)
        _row("Tag 50 runs", lambda: store.tag(ids, add="chosen"), repeat)
        store.rename(ids[0], None)
        store.tag(ids, remove="chosen")
    print()
    return opened_s


def _first_page(runs: Runs, limit: int = 100) -> None:
    runs.list(limit=limit)
    runs.count()
    runs.facets()


def _found(runs: Runs, filter: RunFilter) -> None:
    runs.list(filter)
    runs.count(filter)


def _row(what: str, do: Callable[[], Any], repeat: int, of: int = 1) -> float:
    took: list[float] = []
    for _ in range(repeat):
        begun = time.perf_counter()
        do()
        took.append((time.perf_counter() - begun) / of)
    print(f"| {what} | {1000 * statistics.median(took):.0f} ms | {1000 * max(took):.0f} ms |", flush=True)
    return statistics.median(took)


def _forget(path: Path) -> None:
    """Drops the file from the system's page cache, so that the next read comes from the disk."""
    with path.open("rb") as file, suppress(AttributeError):  # not on every system
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# -- exports, each in a process of its own so that its memory is its own -----------------------------------------------


def _exports(path: Path) -> None:
    print("| Export of the whole set | rows | size | time | memory grew by | of that DuckDB's cache of the file |")
    print("|---|---:|---:|---:|---:|---:|")
    for format in FORMATS:
        for table in TABLES:
            command = [sys.executable, "-m", "benchmarks.store", "--db", str(path), "--child", f"{table}:{format}"]
            got = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            size, grew, cache = (f"{got[name] / 1e6:,.0f} MB" for name in ("bytes", "grew", "cache"))
            print(
                f"| {table}, {format} | {got['rows']:,} | {size} | {got['seconds']:.1f} s | {grew} | {cache} |",
                flush=True,
            )


def _export(path: Path, what: str) -> dict[str, Any]:
    """Exports ``table:format`` to a temporary file; its seconds, bytes, rows and growth of resident memory."""
    table: TableName
    format: Format
    table, format = what.split(":")  # type: ignore[assignment]
    with Store(path) as store:
        Runs(store).list(limit=10)
        with export_file(store, RunFilter(status="no run has this"), table, format):
            pass  # everything that is imported late is imported now
        with Memory(store) as memory:
            begun = time.perf_counter()
            file = export_file(store, RunFilter(), table, format)
            seconds = time.perf_counter() - begun
        with file:
            size = file.seek(0, os.SEEK_END)
        with store.database.read() as connection:
            rows = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
    return {"rows": rows, "bytes": size, "seconds": seconds, "grew": memory.grew, "cache": memory.cache}


if __name__ == "__main__":
    app()
