"""A database that earlier code wrote (``earlier/README.md``): read and exported today exactly as it was then."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.records import to_plain
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


def test_every_run_and_round_is_read_as_it_was_and_no_migration_is_needed(earlier: Path) -> None:
    with Store(earlier / "speclens.duckdb") as store:
        with store.database.read() as connection:
            assert version(connection) == head() == "0004"
        assert store.interrupted == ()
        stored = Runs(store)
        lines = (earlier / "read.jsonl").read_text(encoding="utf-8").splitlines()
        assert sorted(stored.ids(EVERY)) == [json.loads(line)["run"]["run_id"] for line in lines]
        for line in lines:
            run = stored.get(json.loads(line)["run"]["run_id"])
            assert run is not None
            read = {"run": to_plain(run), "rounds": [to_plain(one) for one in stored.rounds(run.run_id)]}
            assert json.dumps(read, ensure_ascii=False) == line
    assert not list(earlier.glob("speclens.schema-*")), "a copy made before a migration"


def test_its_csv_export_is_the_same_byte_for_byte(earlier: Path) -> None:
    with exported(earlier / "speclens.duckdb", "csv", "--bom") as bundle:
        before = {file.name: file.read_bytes() for file in (earlier / "csv").iterdir()}
        assert len(before) == 5
        assert {name: bundle.read(name) for name in bundle.namelist()} == before


def test_its_parquet_export_has_the_same_values_types_and_definitions(earlier: Path) -> None:
    with exported(earlier / "speclens.duckdb", "parquet") as bundle:
        assert sorted(bundle.namelist()) == sorted(file.name for file in (earlier / "parquet").iterdir())
        for file in (earlier / "parquet").iterdir():
            if file.suffix != ".parquet":
                assert bundle.read(file.name) == file.read_bytes()
                continue
            with bundle.open(file.name) as member:
                now, before = pq.read_table(member), pq.read_table(file)
            assert now.schema.equals(before.schema, check_metadata=True)
            assert json.dumps(now.to_pylist(), default=str) == json.dumps(before.to_pylist(), default=str)  # NaN == NaN
