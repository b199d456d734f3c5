"""A Parquet export, one row group at a time: typed columns, each with its unit and definition.

Texts are exactly as stored: no reader of Parquet runs them as formulas, so they need no apostrophe as in the CSV.
"""

from __future__ import annotations

import json
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import literal_column

from storage.export.cells import Kind
from storage.export.dictionary import ExportColumn, TableName, check_table, columns, definition
from storage.export.readings import OnRows, Reading, expression, order, readings, rows
from storage.filters import RunFilter
from storage.store import Store

GROUP = 100_000
"""Most rows of a row group, unless a single reading has more."""

GROUP_BYTES = 16 * 2**20
"""Size at which a row group is written even with fewer rows, in bytes."""

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
    """The table's columns as Parquet types: each field's metadata has its unit and definition, the file's metadata has
    them all as JSON under ``data_dictionary``."""
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
    store: Store, filter: RunFilter, table: TableName, target: IO[bytes], on_rows: OnRows | None = None
) -> None:
    """Writes the table's rows of every run that matches to ``target``, ordered by run id and then within the run.

    Runs added while it is written are not included. Raises BadInput for an unknown table, OSError when the disk is
    full.
    """
    check_table(table)
    chosen, made = columns(table), schema(table)
    with pq.ParquetWriter(_Counted(target), made, compression="zstd") as writer:
        gathered: list[pa.Table] = []
        for reading in readings(store, filter, table, on_rows):
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
    """``target`` with ``tell``, which the Parquet writer calls and a member of a zip file lacks."""

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
