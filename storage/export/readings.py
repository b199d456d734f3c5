"""The queries of an export, each small in memory and short in time.

No query holds a transaction for long, because the writer's checkpoints wait for readers. None returns more than
:data:`ROWS` rows, so a million candidates are exported in the memory of twenty thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, func, literal_column, select

from storage.export.dictionary import ExportColumn, TableName
from storage.filters import RunFilter
from storage.schema import candidates, fingerprints, rounds, runs, tags
from storage.store import Store

OnRows = Callable[[int], None]
"""Called after each reading with its number of rows. An exception raised by it ends the export."""

ROWS = 20_000
"""Most rows of one reading, unless a single round has more. A run counts as one row per 500 bytes."""

MAX_IDS = 500
"""Most runs in one reading."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows that one query reads: of several runs, ordered by id, or of one run's rounds ``start`` … ``stop`` − 1."""

    run_ids: tuple[str, ...]
    start: int = 0
    stop: int | None = None


def readings(store: Store, filter: RunFilter, table: TableName, on_rows: OnRows | None = None) -> Iterator[Reading]:
    """The readings that cover the table's rows of every run that matches now, ordered by run id."""
    for reading, found in _readings(store, filter, table):
        yield reading
        if on_rows is not None:
            on_rows(found)


def rows_of(store: Store, filter: RunFilter, table: TableName) -> int:
    """The number of rows, counted as for :data:`ROWS`, that the table has of the runs that match now."""
    with store.database.read() as connection:
        return sum(int(found) for _, _, found in connection.execute(_sizes(filter, table)))


def _readings(store: Store, filter: RunFilter, table: TableName) -> Iterator[tuple[Reading, int]]:
    with store.database.read() as connection:
        sizes = connection.execute(_sizes(filter, table)).all()
    ids: list[str] = []
    total = 0
    for run_id, count, found in sizes:
        if ids and (total + found > ROWS or len(ids) == MAX_IDS):
            yield Reading(tuple(ids)), total
            ids, total = [], 0
        if found > ROWS and count > 1:
            step = max(1, ROWS * count // int(found))
            for start in range(0, count, step):
                part = min(step, count - start) / count
                yield Reading((run_id,), start, start + step), round(part * int(found))
        else:
            ids.append(run_id)
            total += int(found)
    if ids:
        yield Reading(tuple(ids)), total


def _sizes(filter: RunFilter, table: TableName) -> Select[*tuple[Any, ...]]:
    """One row per run: its id, the number of rounds that its rows can be split by, and the number of rows."""
    if table == "runs":
        length = func.strlen(runs.c.spec_json) + func.strlen(runs.c.prompt) + func.coalesce(func.strlen(runs.c.text), 0)
        size: Select[*tuple[Any, ...]] = select(runs.c.run_id, literal_column("1"), 1 + length // 500)
    else:
        rows = func.count(rounds.c.round_index) if table == "rounds" else func.sum(rounds.c.drafted)
        size = (
            select(runs.c.run_id, func.count(rounds.c.round_index), func.coalesce(rows, 0))
            .join_from(runs, rounds, runs.c.run_id == rounds.c.run_id, isouter=True)
            .group_by(runs.c.run_id)
        )
    return size.where(*filter.conditions()).order_by(runs.c.run_id)


def expression(column: ExportColumn) -> str:
    """The column's value as DuckDB SQL, for use in :func:`rows`."""
    table, name = column.source
    match table:
        case "summary":
            return f"CAST(json_extract(runs.summary_json, '$.{name}') AS VARCHAR)"
        case "tags":
            return "coalesce(tagged.tags, '[]')"
        case _:
            return f'"{table}"."{name}"'


def rows(table: TableName, chosen: Sequence[ColumnElement[Any]], reading: Reading) -> Select[Any]:
    """A query for the expressions ``chosen`` over the reading's rows, unordered (see :func:`order`)."""
    source, key = _source(table)
    # the range lets DuckDB skip blocks by their minima and maxima
    query = select(*chosen).select_from(source).where(key.between(reading.run_ids[0], reading.run_ids[-1]))
    if len(reading.run_ids) > 1:
        query = query.where(key.in_(reading.run_ids))
    if table == "runs":
        return query
    index = _PARTS[table].c.round_index
    query = query.where(index >= reading.start)
    return query if reading.stop is None else query.where(index < reading.stop)


def order(table: TableName) -> tuple[ColumnElement[Any], ...]:
    """The columns that the table's rows are ordered by."""
    match table:
        case "runs":
            return (runs.c.run_id,)
        case "rounds":
            return (rounds.c.run_id, rounds.c.round_index)
        case "candidates":
            return (candidates.c.run_id, candidates.c.round_index, candidates.c.node)


_PARTS = {"rounds": rounds, "candidates": candidates}


def _source(table: TableName) -> tuple[FromClause, ColumnElement[str]]:
    if table != "runs":
        return _PARTS[table], _PARTS[table].c.run_id
    array = literal_column("CAST(to_json(list(tag ORDER BY tag)) AS VARCHAR)").label("tags")
    tagged = select(tags.c.run_id, array).group_by(tags.c.run_id).subquery("tagged")
    whole = runs.outerjoin(fingerprints, runs.c.run_id == fingerprints.c.run_id)
    return whole.outerjoin(tagged, runs.c.run_id == tagged.c.run_id), runs.c.run_id
