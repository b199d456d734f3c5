"""A database that earlier code wrote (``earlier/README.md``): read and exported today exactly as it was then."""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.records import UNKNOWN, to_plain
from storage.__main__ import main
from storage.filters import RunFilter
from storage.migrate import head, version
from storage.queries import Runs
from storage.store import Store

ARCHIVE = Path(__file__).parent / "earlier" / "schema-0004.tar.xz"
EVERY = RunFilter(archived=None)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The archive, unpacked: ``speclens.duckdb`` and what was read and exported of it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier"


def exported(database: Path, format: str, *options: str) -> zipfile.ZipFile:
    out = database.parent / "now"
    assert (
        main(["export", "--db", str(database), "--out", str(out), "--zip", "--archived", "--format", format, *options])
        == 0
    )
    return zipfile.ZipFile(out / "speclens.zip")


SINCE = {"prompt_ids_hash": UNKNOWN, "end_tokens": UNKNOWN, "batch": None}
"""Fields of the fingerprint since then, and what they are in earlier runs."""

COLUMNS = [f"fingerprint_{name}" for name in SINCE]


def test_every_run_and_round_is_read_as_it_was_after_a_migration_that_keeps_a_copy(earlier: Path) -> None:
    with Store(earlier / "speclens.duckdb") as store:
        with store.database.read() as connection:
            assert version(connection) == head() == "0005"
        assert store.interrupted == ()
        stored = Runs(store)
        lines = (earlier / "read.jsonl").read_text(encoding="utf-8").splitlines()
        assert sorted(stored.ids(EVERY)) == [json.loads(line)["run"]["run_id"] for line in lines]
        for line in lines:
            run = stored.get(json.loads(line)["run"]["run_id"])
            assert run is not None
            read = {"run": to_plain(run), "rounds": [to_plain(one) for one in stored.rounds(run.run_id)]}
            if environment := read["run"]["fingerprint"]:
                assert {name: environment.pop(name) for name in SINCE} == SINCE
            assert json.dumps(read, ensure_ascii=False) == line
    assert len(list(earlier.glob("speclens.schema-0004*"))) == 1


def without(name: str, content: bytes) -> bytes:
    """A file of the export without the columns, and their definitions, that earlier runs don't have."""
    if name == "runs.csv":
        head, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        assert head[-len(COLUMNS) :] == COLUMNS
        assert all(row[-len(COLUMNS) :] == [""] * len(COLUMNS) for row in rows)
        named = "".join(f',"{name}"' for name in COLUMNS).encode()
        return re.sub(rb",{%d}(\r?\n)" % len(COLUMNS), rb"\1", content.replace(named, b"", 1))
    if name == "data_dictionary.csv":
        kept = [line for line in content.splitlines(keepends=True) if not any(one.encode() in line for one in COLUMNS)]
        return b"".join(kept)
    return content


def test_its_csv_export_is_the_same_byte_for_byte_but_for_the_columns_since_then(earlier: Path) -> None:
    with exported(earlier / "speclens.duckdb", "csv", "--bom") as bundle:
        before = {file.name: file.read_bytes() for file in (earlier / "csv").iterdir()}
        assert len(before) == 5
        assert {name: without(name, bundle.read(name)) for name in bundle.namelist()} == before


def test_its_parquet_export_has_the_same_values_types_and_definitions(earlier: Path) -> None:
    with exported(earlier / "speclens.duckdb", "parquet") as bundle:
        assert sorted(bundle.namelist()) == sorted(file.name for file in (earlier / "parquet").iterdir())
        for file in (earlier / "parquet").iterdir():
            if file.suffix != ".parquet":
                assert without(file.name, bundle.read(file.name)) == file.read_bytes()
                continue
            with bundle.open(file.name) as member:
                now, before = pq.read_table(member), pq.read_table(file)
            if file.stem == "runs":
                now = now.drop_columns(COLUMNS)
            assert all(now.schema.field(one.name).equals(one, check_metadata=True) for one in before.schema)
            assert now.column_names == before.column_names
            assert json.dumps(now.to_pylist(), default=str) == json.dumps(before.to_pylist(), default=str)  # NaN == NaN
