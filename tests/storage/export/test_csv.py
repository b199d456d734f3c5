"""CSV that a spreadsheet does not run, that readers read back, and that holds the whole matched set."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.results.glossary import GLOSSARY
from storage.export import readings
from storage.export.bundle import export_file
from storage.export.cells import inert
from storage.export.csv import export_csv
from storage.export.dictionary import TABLES, TableName, columns
from storage.filters import RunFilter
from storage.store import Store
from tests.helpers.records import HOSTILE, PROMPTS, at, fingerprint, original, round_, run_id, spec

ALL = RunFilter()


def _bytes(store: Store, table: TableName, filter: RunFilter = ALL, bom: bool = False) -> bytes:
    return b"".join(export_csv(store, filter, table, bom))


def _rows(store: Store, table: TableName, filter: RunFilter = ALL) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_bytes(store, table, filter).decode(), newline="")))


def _frame(data: bytes, **options: Any) -> pd.DataFrame:
    """As the bundle's README tells readers to."""
    return pd.read_csv(io.BytesIO(data), keep_default_na=False, na_values=[""], **options)


def test_prompts_come_back_through_the_csv_module(hostile: Store) -> None:
    rows = _rows(hostile, "runs")
    assert [original(row["prompt"]) for row in rows] == PROMPTS
    assert [original(row["text"]) for row in rows[:-1]] == PROMPTS[:-1]


def test_prompts_come_back_through_pandas(hostile: Store) -> None:
    frame = _frame(_bytes(hostile, "runs"), dtype={"prompt": str, "text": str})
    assert [original(cell) for cell in frame["prompt"]] == PROMPTS


def test_prompts_come_back_through_duckdb(hostile: Store, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_bytes(_bytes(hostile, "runs"))
    query = f"SELECT prompt FROM read_csv('{file}', all_varchar=true, delim=',', quote='\"', escape='\"', header=true)"
    assert [original(cell) for (cell,) in duckdb.sql(query).fetchall()] == PROMPTS


@pytest.mark.parametrize("read", ["csv", "pandas"])
def test_token_texts_are_json_strings_and_come_back_exactly(hostile: Store, read: str) -> None:
    if read == "csv":
        cells = [row["text"] for row in _rows(hostile, "candidates")]
    else:
        cells = list(_frame(_bytes(hostile, "candidates"))["text"])
    expected = [text for number in range(len(PROMPTS) - 1) for text in (PROMPTS[number], "x", HOSTILE[number], "x")]
    assert [json.loads(cell) for cell in cells] == expected
    assert all(cell.startswith('"') for cell in cells)


def test_committed_texts_and_ids_come_back_exactly(hostile: Store) -> None:
    rows = _rows(hostile, "rounds")
    assert json.loads(rows[0]["committed_tokens"]) == [100, 101]
    assert json.loads(rows[0]["committed_texts"]) == [PROMPTS[0]] * 2
    assert len(rows) == 2 * (len(PROMPTS) - 1)


@pytest.mark.parametrize("table", TABLES)
def test_no_cell_begins_like_a_formula_unless_it_is_a_number(hostile: Store, table: TableName) -> None:
    cells = {cell for row in _rows(hostile, table) for cell in row.values() if re.match(r"[=+\-@\t\r\n]", cell)}
    assert cells == ({"-1"} if table == "candidates" else set())  # -1: the parent of a first candidate


@given(text=st.text(alphabet="='+-@\t\r\n a\"", max_size=8) | st.text())
def test_making_a_text_inert_loses_nothing_and_leaves_no_formula(text: str) -> None:
    cell = inert(text)
    assert original(cell) == text
    assert not re.match(r"[=+\-@\t\r\n]", cell)


def test_every_text_is_quoted_numbers_are_bare_and_null_is_empty(hostile: Store) -> None:
    data = _bytes(hostile, "candidates", RunFilter(text=PROMPTS[0])).decode()
    first = data.split("\r\n")[1]
    assert first == f'"{run_id(0)}",0,0,100,"""=1+1""",-1,1,"accepted",0.5,0.25,0.25,1.0,0.125,false,false'
    queued = _bytes(hostile, "runs", RunFilter(status="queued")).decode().split("\r\n", 1)[1]
    assert ',"queued","2026-03-01T12:00:' in queued
    assert ",,,,," in queued


def test_numbers_come_back_bit_for_bit(hostile: Store) -> None:
    frame = _frame(_bytes(hostile, "rounds"))
    assert list(frame["ended_at_s"])[:2] == [round_(0).ended_at_s, round_(1).ended_at_s]
    assert frame["drafted"].tolist() == [2] * len(frame)
    runs = _frame(_bytes(hostile, "runs"))
    assert runs["seed"].tolist() == [2**63 - 1] * len(runs)
    assert json.loads(runs["acceptance_unconditional"].tolist()[0]) == [1.0, 1 / 3, None]
    assert json.loads(runs["fingerprint_versions"].tolist()[0]) == fingerprint().versions
    assert runs["fingerprint_target"].tolist()[0] == "smol"


def test_a_byte_order_mark_comes_only_on_request_and_names_no_column(hostile: Store) -> None:
    assert _bytes(hostile, "runs", bom=True) == b"\xef\xbb\xbf" + _bytes(hostile, "runs")
    assert _frame(_bytes(hostile, "runs", bom=True), encoding="utf-8-sig").columns[0] == "run_id"


def test_the_filter_decides_for_all_three_tables(hostile: Store) -> None:
    queued = RunFilter(status="queued")
    assert [len(_rows(hostile, table, queued)) for table in TABLES] == [1, 0, 0]
    none = RunFilter(status="failed")
    assert [_bytes(hostile, table, none).count(b"\r\n") for table in TABLES] == [1, 1, 1]


def test_another_table_is_refused(hostile: Store) -> None:
    with pytest.raises(BadInput, match="'alembic_version' cannot be exported: choose one of runs, rounds, candidates"):
        export_csv(hostile, ALL, "alembic_version")  # type: ignore[arg-type]


def test_the_pieces_are_the_same_whatever_their_size(hostile: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {table: _bytes(hostile, table) for table in TABLES}
    ended_runs = len(PROMPTS) - 1
    for rows, ids, pieces in ((1, 500, 2 * ended_runs), (4, 500, ended_runs), (20, 2, ended_runs // 2)):
        monkeypatch.setattr(readings, "ROWS", rows)
        monkeypatch.setattr(readings, "MAX_IDS", ids)
        assert {table: _bytes(hostile, table) for table in TABLES} == whole
        assert len([piece for piece in export_csv(hostile, ALL, "candidates") if piece]) == 1 + pieces


def test_a_run_that_is_added_while_the_export_goes_on_is_not_in_it(path: Path) -> None:
    with Store(path, gather_s=0.0) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        store.flush()
        pieces = export_csv(store, ALL, "runs")
        text = next(pieces) + next(pieces)
        store.submitted(run_id(2), spec(), "s", at(0))
        store.flush()
        assert run_id(2).encode() not in text + b"".join(pieces)


def test_half_a_surrogate_pair_does_not_break_the_export(path: Path) -> None:
    with Store(path) as store:
        store.submitted(run_id(1), spec(), "s", at(0))
        one = round_(0)
        store.rounds(run_id(1), [replace(one, nodes=(replace(one.nodes[0], text="\ud800!"),))])
        store.flush()
        assert json.loads(_rows(store, "candidates")[0]["text"]) == "\ufffd!"


def test_the_bundle_holds_the_tables_and_a_dictionary_of_every_column(hostile: Store) -> None:
    with export_file(hostile, ALL, bom=False) as file, zipfile.ZipFile(file) as bundle:
        assert sorted(bundle.namelist()) == [
            "README.txt",
            "candidates.csv",
            "data_dictionary.csv",
            "rounds.csv",
            "runs.csv",
        ]
        for table in TABLES:
            assert bundle.read(f"{table}.csv") == _bytes(hostile, table)
        entries = list(csv.DictReader(io.StringIO(bundle.read("data_dictionary.csv").decode(), newline="")))
    for table in TABLES:
        with_header = _rows(hostile, table)[0]
        assert [entry["column"] for entry in entries if entry["table"] == table] == list(with_header)
    assert all(entry["definition"] and entry["kind"] for entry in entries)
    speed = next(entry for entry in entries if entry["column"] == "tokens_per_second")
    assert speed["definition"] == GLOSSARY["tokens_per_second"].definition
    assert speed["unit"] == "tokens/s"


def test_every_exported_metric_is_defined_by_the_glossary_alone() -> None:
    names = {column.name for table in TABLES for column in columns(table)}
    for column in columns("runs"):
        if column.name in GLOSSARY and column.kind != "json":
            assert (column.unit, column.definition) == (GLOSSARY[column.name].unit, GLOSSARY[column.name].definition)
    assert {"draft_s", "tokens_per_round", "acceptance_conditional", "peak_memory_bytes"} <= names
