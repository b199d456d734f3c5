"""CSV of a whole matched set, in pieces: never more than ``readings.ROWS`` rows in memory, and no long reading.

UTF-8 (with ``bom`` as spreadsheets want it), every text quoted, safe in spreadsheets, NULL empty; see ``cells.py``.
The database writes the lines: a tenth of the time that Python takes for them, and without its interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, literal_column
from sqlalchemy.dialects.postgresql import aggregate_order_by

from core.errors import BadInput
from storage.cells import cell, line, quoted
from storage.dictionary import TABLES, TableName, columns
from storage.filters import RunFilter
from storage.readings import Reading, Told, expression, order, readings, rows
from storage.store import Store

BOM = b"\xef\xbb\xbf"


def checked(table: str) -> None:
    """Raises BadInput when ``table`` is not one that can be exported."""
    if table not in TABLES:
        raise BadInput(f"{table!r} cannot be exported: choose one of {', '.join(TABLES)}.")


def export_csv(
    store: Store, filter: RunFilter, table: TableName, bom: bool = False, told: Told | None = None
) -> Iterator[bytes]:
    """The table's rows of every run that matches, by run id and then in their own order, as pieces of one CSV file.

    Runs that are added meanwhile are not in it. Raises BadInput for another table.
    """
    checked(table)
    return _csv(store, filter, table, bom, told)


def _csv(store: Store, filter: RunFilter, table: TableName, bom: bool, told: Told | None) -> Iterator[bytes]:
    yield (BOM if bom else b"") + line([quoted(column.name) for column in columns(table)]).encode()
    for reading in readings(store, filter, table, told):
        yield _lines(store, table, reading).encode()


def _lines(store: Store, table: TableName, reading: Reading) -> str:
    cells = ", ',', ".join(cell(column.kind, expression(column)) for column in columns(table))
    # concat takes NULL for nothing at all, which is what an empty cell is
    written = literal_column(f"concat({cells}, chr(13), chr(10))")
    together = func.string_agg(written, aggregate_order_by(literal_column("''"), *order(table)))
    with store.database.read() as connection:
        return connection.execute(rows(table, [together], reading)).scalar() or ""
