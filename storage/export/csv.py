"""The CSV of a table, and that of the data dictionary.

A table is written in pieces: at most ``readings.ROWS`` rows are in memory, and no transaction is long. UTF-8, with
a byte order mark if ``bom``; every text quoted and safe in spreadsheets, NULL empty (see ``cells.py``). The database
formats the lines: in a tenth of Python's time, and without holding Python's interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from sqlalchemy import func, literal_column
from sqlalchemy.dialects.postgresql import aggregate_order_by

from storage.export.cells import cell, inert, line, quoted
from storage.export.dictionary import TABLES, Format, TableName, check_table, columns, definition
from storage.export.readings import OnRows, Reading, expression, order, readings, rows
from storage.filters import RunFilter
from storage.store import Store

BOM = b"\xef\xbb\xbf"


def export_csv(
    store: Store, filter: RunFilter, table: TableName, bom: bool = False, on_rows: OnRows | None = None
) -> Iterator[bytes]:
    """The table's rows of every run that matches, ordered by run id and then within the run, as pieces of one CSV file.

    Runs added while it is written are not included. Raises BadInput for an unknown table.
    """
    check_table(table)
    return _csv(store, filter, table, bom, on_rows)


def _csv(store: Store, filter: RunFilter, table: TableName, bom: bool, on_rows: OnRows | None) -> Iterator[bytes]:
    yield (BOM if bom else b"") + line([quoted(column.name) for column in columns(table)]).encode()
    for reading in readings(store, filter, table, on_rows):
        yield _lines(store, table, reading).encode()


def _lines(store: Store, table: TableName, reading: Reading) -> str:
    cells = ", ',', ".join(cell(column.kind, expression(column)) for column in columns(table))
    # concat treats NULL as an empty string, which is the empty cell
    written = literal_column(f"concat({cells}, chr(13), chr(10))")
    together = func.string_agg(written, aggregate_order_by(literal_column("''"), *order(table)))
    with store.database.read() as connection:
        return connection.execute(rows(table, [together], reading)).scalar() or ""


def write_dictionary(format: Format, target: IO[bytes], bom: bool = False) -> None:
    """Writes the data dictionary of all exported tables, which is CSV whatever their format."""
    text = line([quoted(name) for name in ("table", "column", "kind", "unit", "definition")])
    for table in TABLES:
        for column in columns(table):
            cells = (table, column.name, column.kind, column.unit, definition(column, format))
            text += line([quoted(inert(cell)) for cell in cells])
    target.write((BOM if bom else b"") + text.encode())
