"""CSV cells by kind of value: text quoted and inert in a spreadsheet, numbers bare, NULL empty.

Readers disagree on a bare ``null``, ``007`` or a lone carriage return, so texts are quoted. Spreadsheets run a cell
that begins like a formula, so such a text gets an apostrophe in front. Numbers are written as they are.
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
    """``value`` as no spreadsheet runs it: one apostrophe in front when it begins, after any apostrophes, with ``=``,
    ``+``, ``-``, ``@``, a tab, a carriage return or a line feed. Removing that apostrophe restores the text."""
    return "'" + value if _FORMULA.match(value) else value


def quoted(value: str) -> str:
    """``value`` as a quoted cell, its quotation marks doubled (RFC 4180)."""
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
    """DuckDB SQL that formats the expression ``value`` as a cell: NULL for NULL, ``""`` for the empty text."""
    return f"({_CELL[kind](value)})"


def line(cells: list[str]) -> str:
    """A row of cells with its line end (RFC 4180)."""
    return ",".join(cells) + "\r\n"
