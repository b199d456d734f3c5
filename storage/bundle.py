"""The export as one zip file: the three tables, the data dictionary and how to read them."""

from __future__ import annotations

import tempfile
import zipfile
from typing import IO

from storage.dictionary import TABLES, dictionary_csv
from storage.export import BOM, export_csv
from storage.filters import RunFilter
from storage.store import Store

IN_MEMORY = 8 * 2**20
"""Larger bundles go to a temporary file, in bytes."""

README = """Runs exported from SpecLens, as CSV (RFC 4180, UTF-8).

runs.csv             one row per run: settings, summary, environment
rounds.csv           one row per round: counts, seconds, committed tokens
candidates.csv       one row per drafted token
data_dictionary.csv  every column: kind, unit, definition

The tables join by run_id, and by round_index. An empty cell is "no value"; an empty text is two quotation marks.
Kinds: "token" is a text as a JSON string; "json" an array or object; "moment" ISO 8601 in UTC; "flag" true or false.
"text" is free text. Where it begins with = + - @, a tab or a line break (after apostrophes, if any), one apostrophe
stands in front, so that no spreadsheet takes it for a formula: take that one away to have the original.
Characters that UTF-8 cannot hold (half surrogate pairs) are U+FFFD; token ids are exact.

In Python:
    text = {"prompt": str, "text": str, "error": str}
    pandas.read_csv("runs.csv", dtype=text, keep_default_na=False, na_values=[""])
(pandas has an empty text and no value as the same; the first argument keeps prompts such as 007 as they are.)
"""


def write_bundle(store: Store, filter: RunFilter, target: IO[bytes], bom: bool = True) -> None:
    """Writes the zip of every run that matches to ``target``, piece by piece."""
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("README.txt", README)
        bundle.writestr("data_dictionary.csv", (BOM if bom else b"") + dictionary_csv().encode())
        for table in TABLES:
            with bundle.open(f"{table}.csv", "w", force_zip64=True) as file:
                for piece in export_csv(store, filter, table, bom):
                    file.write(piece)


def export_zip(store: Store, filter: RunFilter, bom: bool = True) -> IO[bytes]:
    """The bundle as an open file at its start; it disappears when closed."""
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - handed to the caller, who closes it
    write_bundle(store, filter, file, bom)
    file.seek(0)
    return file
