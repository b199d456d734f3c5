"""The matched set of an export, cut into readings that are small in memory and short in time.

No reading holds a transaction for long (the writer's checkpoints wait for readers), and none is larger than
:data:`ROWS` rows, so that a million candidates are exported in the memory of twenty thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, func, literal_column, select

from storage.dictionary import ExportColumn, TableName
from storage.filters import RunFilter
from storage.schema import candidates, fingerprints, rounds, runs, tags
from storage.store import Store

Told = Callable[[int], None]
"""Told, after each reading, how many rows it had. What it raises ends the export."""

ROWS = 20_000
"""Most rows read at once, but for a round that has more by itself. A run counts as a row per 500 bytes."""

MOST_IDS = 500
"""Most runs in one reading."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows to read at once: those of some runs, in order of their ids, or of one run's rounds ``start`` … ``stop``."""

    run_ids: tuple[str, ...]
    start: int = 0
    stop: int | None = None


def readings(store: Store, filter: RunFilter, table: TableName, told: Told | None = None) -> Iterator[Reading]:
    """The readings that make up the table's rows of every run that matches now, by run id; ``told`` after each how
    many rows it had."""
    for reading, found in _readings(store, filter, table):
        yield reading
        if told is not None:
            told(found)


def rows_of(store: Store, filter: RunFilter, table: TableName) -> int:
    """How many rows, as :func:`readings` counts them, the table has of every run that matches now."""
    with store.database.read() as connection:
        return sum(int(found) for _, _, found in connection.execute(_sizes(filter, table)))


def _readings(store: Store, filter: RunFilter, table: TableName) -> Iterator[tuple[Reading, int]]:
    with store.database.read() as connection:
        sizes = connection.execute(_sizes(filter, table)).all()
    ids: list[str] = []
    total = 0
    for run_id, count, found in sizes:
        if ids and (total + found > ROWS or len(ids) == MOST_IDS):
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
    """Per run: its id, how many rounds its rows can be cut into, and how many rows there are."""
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
    """The column's value as DuckDB SQL, in the query that :func:`rows` makes."""
    table, name = column.source
    match table:
        case "summary":
            return f"CAST(json_extract(runs.summary_json, '$.{name}') AS VARCHAR)"
        case "tags":
            return "coalesce(tagged.tags, '[]')"
        case _:
            return f'"{table}"."{name}"'


def rows(table: TableName, chosen: Sequence[ColumnElement[Any]], reading: Reading) -> Select[Any]:
    """``chosen``, made of :func:`expression` s, of the reading's rows; not ordered (see :func:`order`)."""
    source, key = _source(table)
    # the range lets DuckDB pass over blocks by their minima and maxima
    query = select(*chosen).select_from(source).where(key.between(reading.run_ids[0], reading.run_ids[-1]))
    if len(reading.run_ids) > 1:
        query = query.where(key.in_(reading.run_ids))
    if table == "runs":
        return query
    index = _PARTS[table].c.round_index
    query = query.where(index >= reading.start)
    return query if reading.stop is None else query.where(index < reading.stop)


def order(table: TableName) -> tuple[ColumnElement[Any], ...]:
    """What the table's rows are ordered by."""
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
