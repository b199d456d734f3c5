"""An export as a file: one table, or a zip of all tables with their data dictionary and a README."""

from __future__ import annotations

import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from core.errors import StorageUnavailable
from storage.connect import refusal
from storage.export.csv import export_csv, write_dictionary
from storage.export.dictionary import TABLES, Format, TableName
from storage.export.parquet import write_parquet
from storage.export.readings import OnRows
from storage.filters import RunFilter
from storage.store import Store

_TABLES = """
runs.{suffix}  one row per run: settings, labels, summary, environment
rounds.{suffix}  one row per round: counts, seconds, committed tokens
candidates.{suffix}  one row per drafted token
data_dictionary.csv  every column: kind, unit, definition
"""

_README_CSV = """Runs exported from SpecLens, as CSV (RFC 4180, UTF-8).
{tables}
The tables join by run_id, and by round_index. An empty cell is "no value"; an empty text is two quotation marks.
Kinds: "token" is a text as a JSON string; "json" an array or object; "moment" ISO 8601 in UTC; "flag" true or false.
"text" is free text. Where it begins with = + - @, a tab or a line break (after apostrophes, if any), one apostrophe
stands in front, so that no spreadsheet takes it for a formula: take that one away to have the original.
Characters that UTF-8 cannot hold (half surrogate pairs) are U+FFFD; token ids are exact.

In Python:
    text = {{"prompt": str, "text": str, "error": str, "name": str, "note": str}}
    pandas.read_csv("runs.csv", dtype=text, keep_default_na=False, na_values=[""])
(pandas has an empty text and no value as the same; the first argument keeps prompts such as 007 as they are.)
"""

_README_PARQUET = """Runs exported from SpecLens, as Parquet (zstd).
{tables}
The tables join by run_id, and by round_index. Every column carries its unit and definition in its field's metadata,
and the file has them all under the key data_dictionary. Kinds: "text" and "token" are texts as they are; "json" is a
text that holds an array or object; "moment" a UTC timestamp; "flag" a boolean. Null is "no value".
Characters that UTF-8 cannot hold (half surrogate pairs) are U+FFFD; token ids are exact.
"""


def readme(format: Format) -> str:
    """The README of the bundle: how its files are to be read."""
    lines = [entry.partition("  ") for entry in _TABLES.format(suffix=format).strip().splitlines()]
    tables = "".join(f"{name:<21}{content}\n" for name, _, content in lines)
    return {"csv": _README_CSV, "parquet": _README_PARQUET}[format].format(tables="\n" + tables)


def write_table(
    store: Store,
    filter: RunFilter,
    table: TableName,
    format: Format,
    target: IO[bytes],
    bom: bool = False,
    on_rows: OnRows | None = None,
) -> None:
    """Writes one table of every run that matches to ``target``, piece by piece; ``bom`` applies to CSV only."""
    if format == "parquet":
        write_parquet(store, filter, table, target, on_rows)
        return
    for piece in export_csv(store, filter, table, bom, on_rows):
        target.write(piece)


def write_bundle(
    store: Store,
    filter: RunFilter,
    target: IO[bytes],
    bom: bool = True,
    format: Format = "csv",
    on_rows: OnRows | None = None,
) -> None:
    """Writes the zip of all tables of every run that matches to ``target``, piece by piece."""
    packed = zipfile.ZIP_DEFLATED if format == "csv" else zipfile.ZIP_STORED  # Parquet is compressed already
    with zipfile.ZipFile(target, "w", compression=packed, compresslevel=1 if format == "csv" else None) as bundle:
        bundle.writestr("README.txt", readme(format))
        with bundle.open("data_dictionary.csv", "w") as file:
            write_dictionary(format, file, bom)
        for table in TABLES:
            with bundle.open(f"{table}.{format}", "w", force_zip64=True) as file:
                write_table(store, filter, table, format, file, bom, on_rows)


def export_file(
    store: Store,
    filter: RunFilter,
    table: TableName | None = None,
    format: Format = "csv",
    *,
    bom: bool = False,
    folder: Path | None = None,
    on_rows: OnRows | None = None,
) -> IO[bytes]:
    """The export as an open file at its start: one table, or with None the bundle of all.

    The file is on disk, unnamed, in ``folder`` (default: the system's temporary folder), and disappears when closed.
    Raises StorageUnavailable when there is no room for it, and whatever ``on_rows`` raises; nothing is left behind.
    """
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - handed to the caller, who closes it
    try:
        if table is None:
            write_bundle(store, filter, file, bom, format, on_rows)
        else:
            write_table(store, filter, table, format, file, bom, on_rows)
        file.seek(0)
    except BaseException as error:
        _close_quietly(file)
        if isinstance(error, OSError):
            place = folder or tempfile.gettempdir()
            raise StorageUnavailable(f"The export cannot be written to {place}: {refusal(error)}.") from error
        raise
    return file


def _close_quietly(file: IO[bytes]) -> None:
    """Closes the unnamed file; a full disk fails its buffered rest too, which no longer matters."""
    with suppress(OSError):
        file.close()
