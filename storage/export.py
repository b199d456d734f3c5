"""CSV of a whole matched set, in pieces: never more than :data:`ROWS` rows in memory, and no long reading.

UTF-8 (with ``bom`` as spreadsheets want it), every text quoted, safe in spreadsheets, NULL empty; see ``cells.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from core.errors import BadInput
from storage.cells import line, quoted, writer
from storage.dictionary import TABLES, ExportColumn, TableName, columns
from storage.filters import RunFilter
from storage.schema import candidates, fingerprints, rounds, runs
from storage.store import Store

ROWS = 20_000
"""Most rows read at once, but for a round that has more by itself."""

MOST_IDS = 500
"""Most runs in one reading."""

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Reading:
    """Rows to read at once: those of some runs, or of one run's rounds ``start`` … ``stop``."""

    run_ids: tuple[str, ...]
    start: int = 0
    stop: int | None = None


def export_csv(store: Store, filter: RunFilter, table: TableName, bom: bool = False) -> Iterator[bytes]:
    """The table's rows of every run that matches, by run id and then in their own order, as pieces of one CSV file.

    Runs that are added meanwhile are not in it. Raises BadInput for another table.
    """
    if table not in TABLES:
        raise BadInput(f"{table!r} cannot be exported: choose one of {', '.join(TABLES)}.")
    return _csv(store, filter, table, bom)


def _csv(store: Store, filter: RunFilter, table: TableName, bom: bool) -> Iterator[bytes]:
    chosen = columns(table)
    yield (BOM if bom else b"") + line([quoted(column.name) for column in chosen]).encode()
    cells = [writer(column.kind) for column in chosen]
    for reading in _readings(store, filter, table):
        text = "".join(
            line([cell(value) for cell, value in zip(cells, row, strict=True)])
            for row in _rows(store, table, chosen, reading)
        )
        yield text.encode()


def _readings(store: Store, filter: RunFilter, table: TableName) -> Iterator[_Reading]:
    size = {
        "runs": func.count(runs.c.run_id.distinct()),
        "rounds": func.count(rounds.c.round_index),
        "candidates": func.coalesce(func.sum(rounds.c.drafted), 0),
    }[table]
    counted = (
        select(runs.c.run_id, func.count(rounds.c.round_index).label("rounds"), size.label("rows"))
        .join_from(runs, rounds, runs.c.run_id == rounds.c.run_id, isouter=True)
        .where(*filter.conditions())
        .group_by(runs.c.run_id)
        .order_by(runs.c.run_id)
    )
    with store.database.read() as connection:
        sizes = connection.execute(counted).all()
    ids: list[str] = []
    total = 0
    for run_id, count, found in sizes:
        if ids and (total + found > ROWS or len(ids) == MOST_IDS):
            yield _Reading(tuple(ids))
            ids, total = [], 0
        if found > ROWS:
            step = max(1, ROWS * count // int(found))
            for start in range(0, count, step):
                yield _Reading((run_id,), start, start + step)
        else:
            ids.append(run_id)
            total += int(found)
    if ids:
        yield _Reading(tuple(ids))


def _rows(store: Store, table: TableName, chosen: Sequence[ExportColumn], reading: _Reading) -> Iterator[Sequence[Any]]:
    if table == "runs":
        return _run_rows(store, chosen, reading)
    source = rounds if table == "rounds" else candidates
    order = [source.c.run_id, source.c.round_index] + ([candidates.c.node] if table == "candidates" else [])
    query = (
        select(*(source.c[column.name] for column in chosen))
        .where(source.c.run_id.in_(reading.run_ids), source.c.round_index >= reading.start)
        .order_by(*order)
    )
    if reading.stop is not None:
        query = query.where(source.c.round_index < reading.stop)
    with store.database.read() as connection:
        return iter(connection.execute(query).all())


def _run_rows(store: Store, chosen: Sequence[ExportColumn], reading: _Reading) -> Iterator[Sequence[Any]]:
    tables = {"runs": runs, "fingerprints": fingerprints}
    read = [column for column in chosen if column.source[0] in tables]
    query = (
        select(runs.c.summary_json, *(tables[column.source[0]].c[column.source[1]] for column in read))
        .join_from(runs, fingerprints, runs.c.run_id == fingerprints.c.run_id, isouter=True)
        .where(runs.c.run_id.in_(reading.run_ids))
        .order_by(runs.c.run_id)
    )
    with store.database.read() as connection:
        found = connection.execute(query).all()
    for row in found:
        summary = json.loads(row[0]) if row[0] is not None else {}
        stored = iter(row[1:])
        yield [
            next(stored) if column.source[0] in tables else _list(summary.get(column.source[1])) for column in chosen
        ]


def _list(values: Sequence[Any] | None) -> str | None:
    return None if values is None else json.dumps(values)
