"""Parquet of a whole matched set, a row group at a time: typed columns, each with its unit and definition.

Texts are as they were stored: nothing runs them, so nothing stands in front of them as in the CSV.
"""

from __future__ import annotations

import json
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import literal_column

from storage.cells import Kind
from storage.dictionary import ExportColumn, TableName, columns, definition
from storage.export import checked
from storage.filters import RunFilter
from storage.readings import Reading, Told, expression, order, readings, rows
from storage.store import Store

GROUP = 100_000
"""Rows gathered into one row group, but for a reading that is larger by itself."""

GROUP_BYTES = 16 * 2**20
"""A row group is ended at this size too, in bytes."""

_TYPE: dict[Kind, pa.DataType] = {
    "text": pa.string(),
    "token": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
    "moment": pa.timestamp("us", tz="UTC"),
}


def schema(table: TableName) -> pa.Schema:
    """The table's columns as Parquet has them: unit and definition in each field's metadata, and all of them once
    more under ``data_dictionary``, as JSON, in the file's."""
    entries = [
        {"column": one.name, "kind": one.kind, "unit": one.unit, "definition": definition(one, "parquet")}
        for one in columns(table)
    ]
    fields = [
        pa.field(one.name, _TYPE[one.kind], metadata={"unit": one.unit, "definition": entry["definition"]})
        for one, entry in zip(columns(table), entries, strict=True)
    ]
    return pa.schema(fields, metadata={"data_dictionary": json.dumps(entries, ensure_ascii=False)})


def write_parquet(
    store: Store, filter: RunFilter, table: TableName, target: IO[bytes], told: Told | None = None
) -> None:
    """Writes the table's rows of every run that matches, by run id and then in their own order, to ``target``.

    Runs that are added meanwhile are not in it. Raises BadInput for another table, OSError when ``target`` is full.
    """
    checked(table)
    chosen, made = columns(table), schema(table)
    with pq.ParquetWriter(_Counted(target), made, compression="zstd") as writer:
        gathered: list[pa.Table] = []
        for reading in readings(store, filter, table, told):
            gathered.append(_read(store, table, chosen, reading).cast(made))
            full = (
                sum(part.num_rows for part in gathered) >= GROUP or sum(part.nbytes for part in gathered) >= GROUP_BYTES
            )
            if full:
                writer.write_table(pa.concat_tables(gathered))
                gathered = []
        if gathered:
            writer.write_table(pa.concat_tables(gathered))


def _read(store: Store, table: TableName, chosen: tuple[ExportColumn, ...], reading: Reading) -> pa.Table:
    cells = [literal_column(expression(one)).label(one.name) for one in chosen]
    query = rows(table, cells, reading).order_by(*order(table))
    with store.database.read() as connection:
        result: Any = connection.execute(query, execution_options={"duckdb_arrow": True})
        return cast(pa.Table, result.arrow)


class _Counted:
    """``target`` with a position, which a member of a zip file lacks and the Parquet writer asks for."""

    closed = False

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._written = 0

    def write(self, data: bytes) -> int:
        self._target.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._target.flush()

    def close(self) -> None:
        """The target is its owner's to close."""
