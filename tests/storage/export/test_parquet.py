"""Parquet of the whole matched set: typed, exact, explained, and the same rows as the CSV."""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import BadInput
from core.results.glossary import GLOSSARY
from storage.export import parquet, readings
from storage.export.bundle import export_file
from storage.export.csv import export_csv
from storage.export.dictionary import TABLES, TableName, columns
from storage.export.parquet import write_parquet
from storage.filters import RunFilter
from storage.store import Store
from tests.helpers.records import HOSTILE, NOON, PROMPTS, at, fingerprint, round_, run_id, spec

ALL = RunFilter()


def _table(store: Store, table: TableName, filter: RunFilter = ALL) -> pa.Table:
    with export_file(store, filter, table, "parquet") as file:
        return pq.read_table(pa.BufferReader(file.read()))


def test_texts_come_back_exactly_with_nothing_in_front(hostile: Store) -> None:
    runs = _table(hostile, "runs")
    assert runs["prompt"].to_pylist() == PROMPTS
    assert runs["text"].to_pylist() == [*PROMPTS[:-1], None]
    expected = [text for number in range(len(PROMPTS) - 1) for text in (PROMPTS[number], "x", HOSTILE[number], "x")]
    assert _table(hostile, "candidates")["text"].to_pylist() == expected


def test_labels_are_exported(hostile: Store) -> None:
    first, second = _table(hostile, "runs").select(["name", "note", "tags"]).to_pylist()[:2]
    assert (first["name"], first["note"], json.loads(first["tags"])) == ("=name", "-note", ['"a"', "b"])
    assert second == {"name": None, "note": None, "tags": "[]"}


def test_numbers_flags_and_moments_keep_their_types(hostile: Store) -> None:
    runs = _table(hostile, "runs").to_pylist()
    assert (runs[0]["seed"], runs[0]["submitted_at"], runs[0]["archived"]) == (2**63 - 1, NOON, False)
    assert (runs[-1]["started_at"], runs[-1]["tokens_per_second"]) == (None, None)
    assert json.loads(runs[0]["acceptance_unconditional"]) == [1.0, 1 / 3, None]
    assert json.loads(runs[0]["fingerprint_versions"]) == fingerprint().versions
    node = _table(hostile, "candidates").to_pylist()[0]
    assert (node["p"], node["u"], node["near_threshold"]) == (0.5, 0.125, False)


def test_a_number_that_was_not_finite_is_null(path: Path) -> None:
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.rounds(run_id(1), [replace(round_(0), draft_s=math.nan)])
        store.flush()
        assert _table(store, "rounds")["draft_s"].to_pylist() == [None]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_carries_its_unit_and_definition(hostile: Store, table: TableName) -> None:
    schema = _table(hostile, table).schema
    assert schema.names == [column.name for column in columns(table)]
    entries = json.loads(schema.metadata[b"data_dictionary"])
    assert [entry["column"] for entry in entries] == schema.names
    for field in schema:
        assert field.metadata[b"definition"]
        assert b"JSON string" not in field.metadata[b"definition"]
    if table == "runs":
        speed = schema.field("tokens_per_second").metadata
        metric = GLOSSARY["tokens_per_second"]
        assert (speed[b"definition"].decode(), speed[b"unit"].decode()) == (metric.definition, metric.unit)


@pytest.mark.parametrize("table", TABLES)
def test_a_set_without_runs_is_a_table_without_rows(hostile: Store, table: TableName) -> None:
    empty = _table(hostile, table, RunFilter(status="failed"))
    assert empty.num_rows == 0
    assert empty.schema == _table(hostile, table).schema


@pytest.mark.parametrize("table", TABLES)
def test_the_file_is_the_same_rows_however_they_are_cut(
    hostile: Store, table: TableName, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _table(hostile, table)
    rows_in_csv = b"".join(export_csv(hostile, ALL, table)).count(f'\r\n"{run_id(0)[:20]}'.encode())
    assert whole.num_rows == rows_in_csv
    monkeypatch.setattr(readings, "ROWS", 3)
    monkeypatch.setattr(parquet, "GROUP", 7)
    assert _table(hostile, table) == whole


def test_another_table_is_refused(hostile: Store) -> None:
    with pytest.raises(BadInput, match="'positions' cannot be exported: choose one of runs, rounds, candidates"):
        write_parquet(hostile, ALL, "positions", io.BytesIO())  # type: ignore[arg-type]


def test_the_parquet_bundle_holds_three_tables_and_a_dictionary(hostile: Store) -> None:
    with export_file(hostile, ALL, format="parquet") as file, zipfile.ZipFile(file) as bundle:
        assert sorted(bundle.namelist()) == [
            "README.txt",
            "candidates.parquet",
            "data_dictionary.csv",
            "rounds.parquet",
            "runs.parquet",
        ]
        for table in TABLES:
            assert pq.read_table(pa.BufferReader(bundle.read(f"{table}.parquet"))) == _table(hostile, table)
        assert "runs.parquet         one row per run" in bundle.read("README.txt").decode()
        assert "JSON string" not in bundle.read("data_dictionary.csv").decode()


def test_the_download_is_an_open_file_at_its_start_that_leaves_nothing_behind(hostile: Store, tmp_path: Path) -> None:
    file: IO[bytes] = export_file(hostile, ALL, "rounds", folder=tmp_path)
    assert file.read() == b"".join(export_csv(hostile, ALL, "rounds"))
    file.close()
    assert list(tmp_path.iterdir()) == []
