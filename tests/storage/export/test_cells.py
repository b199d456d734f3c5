"""The cells that the database writes, against the same cells written by Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.export.cells import Kind, cell, inert
from storage.values import text
from tests.helpers.records import HOSTILE, original

texts = st.one_of(
    st.text(alphabet="='+-@\t\r\n a\"", max_size=8), st.text(max_size=12).map(text), st.sampled_from(HOSTILE)
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """As the app has it: nothing is fetched."""
    config: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with duckdb.connect(config=config) as connection:
        yield connection


def _written(database: duckdb.DuckDBPyConnection, kind: Kind, sql: str, value: Any) -> str | None:
    found = database.execute(f"SELECT {cell(kind, 'v')} FROM (SELECT CAST($1 AS {sql}) AS v)", [value]).fetchone()
    assert found is not None
    return found[0] if found[0] is None else str(found[0])


def _read(written: str) -> str:
    ((value,),) = csv.reader(io.StringIO(written, newline=""), strict=True)
    return value


@given(value=texts)
def test_free_text_is_quoted_inert_and_comes_back(database: duckdb.DuckDBPyConnection, value: str) -> None:
    written = _written(database, "text", "VARCHAR", value)
    assert written is not None
    assert written == '"' + inert(value).replace('"', '""') + '"'
    assert original(_read(written)) == value


@given(value=texts)
def test_a_token_is_a_json_string_and_comes_back(database: duckdb.DuckDBPyConnection, value: str) -> None:
    written = _written(database, "token", "VARCHAR", value)
    assert written is not None
    assert written.startswith('"""')
    assert json.loads(_read(written)) == value


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_bit_for_bit(database: duckdb.DuckDBPyConnection, value: float) -> None:
    written = database.execute(f"SELECT concat({cell('number', 'v')}) FROM (SELECT CAST($1 AS DOUBLE) AS v)", [value])
    ((said,),) = written.fetchall()
    assert float(said).hex() == value.hex()


@given(value=st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1)))
def test_a_moment_is_iso_8601_in_utc(database: duckdb.DuckDBPyConnection, value: datetime) -> None:
    written = _written(database, "moment", "TIMESTAMP", value)
    assert written is not None
    assert datetime.fromisoformat(_read(written)) == value.replace(tzinfo=UTC)


def test_an_empty_text_differs_from_no_value(database: duckdb.DuckDBPyConnection) -> None:
    assert _written(database, "text", "VARCHAR", "") == '""'
    for kind, sql in (("text", "VARCHAR"), ("token", "VARCHAR"), ("number", "DOUBLE"), ("moment", "TIMESTAMP")):
        assert _written(database, kind, sql, None) is None  # type: ignore[arg-type]
