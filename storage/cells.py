"""One CSV cell of each kind of value: text always quoted and inert in a spreadsheet, numbers bare, NULL empty.

Readers differ in what they make of a bare ``null``, ``007`` or a lone carriage return, and spreadsheets run a cell that
begins like a formula; quoting answers the former, a leading apostrophe the latter. Numbers are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

Kind = Literal["text", "token", "json", "integer", "number", "flag", "moment"]
"""text: free text · token: a token's text as a JSON string, which always begins with a quotation mark and loses nothing
· json: an array or object · integer, number, flag: bare · moment: ISO 8601, UTC."""

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def inert(value: str) -> str:
    """Free text that no spreadsheet runs: one apostrophe in front when it begins, apostrophes aside, with one of
    ``= + - @``, tab, carriage return or line feed. :func:`original` takes it away again."""
    return "'" + value if _FORMULA.match(value) else value


def original(cell: str) -> str:
    """What :func:`inert` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def quoted(value: str) -> str:
    """A quoted cell; quotation marks inside are doubled (RFC 4180)."""
    return '"' + value.replace('"', '""') + '"'


def _inert_sql(value: str) -> str:
    return rf"CASE WHEN regexp_matches({value}, '^''*[=+\-@\t\r\n]') THEN '''' || {value} ELSE {value} END"


def _quoted_sql(value: str) -> str:
    return f"'\"' || replace({value}, '\"', '\"\"') || '\"'"


_CELL: dict[Kind, Callable[[str], str]] = {
    "text": lambda value: _quoted_sql(_inert_sql(value)),
    "token": lambda value: _quoted_sql(f"CAST(to_json({value}) AS VARCHAR)"),
    "json": _quoted_sql,
    "integer": str,
    "number": str,
    "flag": str,
    "moment": lambda value: _quoted_sql(f"strftime({value}, '%Y-%m-%dT%H:%M:%S.%f+00:00')"),
}


def cell(kind: Kind, value: str) -> str:
    """DuckDB SQL of the cell that the expression ``value`` becomes: NULL for NULL, ``""`` for the empty text."""
    return f"({_CELL[kind](value)})"


def line(cells: list[str]) -> str:
    """A row, ended as RFC 4180 has it."""
    return ",".join(cells) + "\r\n"
