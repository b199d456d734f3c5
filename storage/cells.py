"""One CSV cell of each kind of value: text always quoted and inert in a spreadsheet, numbers bare, NULL empty.

Readers differ in what they make of a bare ``null``, ``007`` or a lone carriage return, and spreadsheets run a cell that
begins like a formula; quoting answers the former, a leading apostrophe the latter. Numbers are never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from storage.values import text

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


def _token(value: str) -> str:
    return quoted(json.dumps(text(value), ensure_ascii=False))


def _moment(value: datetime) -> str:
    return quoted(value.replace(tzinfo=UTC).isoformat(timespec="microseconds"))


def _flag(value: bool) -> str:
    return "true" if value else "false"


_WRITE: dict[Kind, Callable[[Any], str]] = {
    "text": lambda value: quoted(inert(value)),
    "token": _token,
    "json": quoted,
    "integer": str,
    "number": repr,
    "flag": _flag,
    "moment": _moment,
}


def writer(kind: Kind) -> Callable[[Any], str]:
    """The function that writes values of ``kind`` as cells; None becomes nothing at all, the empty text ``""``."""
    write = _WRITE[kind]
    return lambda value: "" if value is None else write(value)


def line(cells: list[str]) -> str:
    """A row, ended as RFC 4180 has it."""
    return ",".join(cells) + "\r\n"
