"""The schema goes forward, one revision at a time, and a copy is kept of what was there."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from duckdb_sqlalchemy import checkpoint, insert
from sqlalchemy import String

from core.errors import StorageUnavailable
from core.records import Fingerprint, Position, Summary, TopToken
from core.types import Sampling
from storage import migrate
from storage.connect import connect
from storage.filters import RunFilter
from storage.inspection import log_of
from storage.queries import Runs
from storage.run_rows import submitted_row
from storage.schema import fingerprints, metadata, runs
from storage.store import Store
from tests.helpers.records import at, run_id, spec, summary


def _first_schema(path: Path, in_log: bool = False) -> None:
    """A database as the first revision left it, with one run in it, or in its log."""
    engine = connect(path)
    with engine.connect() as connection:
        migrate.upgrade(connection, "0001")
        connection.commit()
        row = submitted_row(run_id(1), spec(), "old session", at(0)) | {"status": "done"}
        del row["allowed"]  # since schema 0004
        connection.execute(insert(runs).values(**row))
        connection.commit()
        if not in_log:
            checkpoint(connection)
    engine.dispose()


def test_a_new_database_has_exactly_the_tables_of_the_code(store: Store) -> None:
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        assert migrate.version(connection) == migrate.head() == "0005"


def test_a_database_of_the_first_schema_is_copied_migrated_and_keeps_its_runs(path: Path) -> None:
    _first_schema(path)
    with Store(path) as store:
        with store.database.read() as connection:
            assert migrate.version(connection) == migrate.head()
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        (run,) = Runs(store).list()
        assert (run.run_id, run.session, run.spec, run.rounds_missing) == (run_id(1), "old session", spec(), None)
    copy = path.with_name("speclens.schema-0001.duckdb")
    with duckdb.connect(str(copy), read_only=True) as old:
        assert old.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert old.execute("SELECT run_id FROM runs").fetchall() == [(run_id(1),)]
        assert ("rounds_missing",) not in old.execute("SELECT column_name FROM information_schema.columns").fetchall()


def test_a_migration_names_its_copy_and_copies_what_is_still_in_the_log(path: Path) -> None:
    _first_schema(path, in_log=True)
    before = path.read_bytes(), log_of(path).read_bytes()
    copy = path.with_name("speclens.schema-0001.duckdb")
    with Store(path) as store:
        assert store.notes == (
            f"The database was brought to schema {migrate.head()}. As it was before, it is kept as {copy}: delete that "
            "copy when you no longer want to go back.",
        )
        assert Runs(store).count() == 1
    assert (copy.read_bytes(), log_of(copy).read_bytes()) == before
    with duckdb.connect(str(copy)) as old:
        assert old.execute("SELECT run_id FROM runs").fetchall() == [(run_id(1),)]
    with Store(path) as store:
        assert store.notes == ()


def test_an_earlier_copy_is_never_written_over(path: Path) -> None:
    earlier = path.with_name("speclens.schema-0001.duckdb")
    earlier.write_text("an earlier copy")
    _first_schema(path)
    Store(path).close()
    assert earlier.read_text() == "an earlier copy"
    assert path.with_name("speclens.schema-0001-2.duckdb").is_file()


def test_a_current_database_is_opened_without_a_copy(path: Path) -> None:
    Store(path).close()
    Store(path).close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["speclens.duckdb"]


def test_a_database_of_a_newer_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    Store(path).close()
    with duckdb.connect(str(path)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    with pytest.raises(StorageUnavailable) as refused:
        Store(path)
    assert str(refused.value) == (
        f"{path} was written by a newer SpecLens: its schema is 9999 and this one knows up to 0005. "
        "Update SpecLens, or name another file."
    )
    assert path.read_bytes() == before


def test_another_programs_duckdb_database_is_refused(path: Path) -> None:
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE sales(amount INTEGER)")
    with pytest.raises(StorageUnavailable, match=r"not one of SpecLens \(it has a table 'sales'\)"):
        Store(path)


def test_a_migration_that_finds_no_room_for_the_copy_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _first_schema(path)

    def full(source: Any, target: Any) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(StorageUnavailable, match=r"could not be copied .*No space left.* Nothing was changed"):
            Store(path)
    assert [file.name for file in path.parent.iterdir()] == ["speclens.duckdb"]
    with duckdb.connect(str(path), read_only=True) as old:
        assert old.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]


def test_a_failed_migration_is_rolled_back_and_names_the_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _first_schema(path)
    upgrade = migrate.upgrade

    def fail(connection: Any, revision: str = "head") -> None:
        upgrade(connection, revision)
        raise RuntimeError("the power went")

    with monkeypatch.context() as patched:
        patched.setattr(migrate, "upgrade", fail)
        with pytest.raises(StorageUnavailable, match="could not be brought from schema 0001 to 0005") as refused:
            Store(path)
    copy = path.with_name("speclens.schema-0001.duckdb")
    assert str(refused.value).endswith(f"(the power went); it is unchanged. The copy made before is {copy}.")
    with Store(path) as store:
        assert Runs(store).count() == 1


def test_every_scalar_of_a_summary_and_every_setting_has_a_column() -> None:
    lists = {field.name for field in dataclasses.fields(Summary) if "tuple" in str(field.type)}
    assert lists == {"acceptance_unconditional", "acceptance_conditional"}
    assert {field.name for field in dataclasses.fields(Summary)} - lists <= set(runs.c.keys())
    assert set(Sampling.model_fields) <= set(runs.c.keys())
    assert {field.name for field in dataclasses.fields(Fingerprint)} == set(fingerprints.c.keys()) - {"run_id"}


def test_no_table_has_foreign_keys_secondary_indexes_sized_strings_or_32_bit_floats() -> None:
    for table in metadata.tables.values():
        assert not table.foreign_keys
        assert not table.indexes
        for column in table.columns:
            if isinstance(column.type, String):
                assert column.type.length is None
                assert type(column.type) is String
            assert type(column.type).__name__ in {"String", "BigInteger", "Double", "Boolean", "DateTime"}


def test_a_database_of_the_second_schema_gets_labels_and_its_candidates_read_as_before(path: Path) -> None:
    _first_schema(path)
    engine = connect(path)
    with engine.connect() as connection:
        migrate.upgrade(connection, "0002")
        connection.exec_driver_sql(
            "INSERT INTO rounds "
            "SELECT run_id, 0, 0, 'bonus', 1, 1, 0, 0, 0, 1, 1, '[5]', '[\"a\"]', 0, 0, 0, 0, 0, 0 FROM runs"
        )
        connection.exec_driver_sql(
            "INSERT INTO candidates SELECT run_id, 0, 0, 5, 'a', -1, 1, 'accepted', 1, 1, 1, 1, 0, false FROM runs"
        )
        connection.commit()
    engine.dispose()
    with Store(path) as store:
        stored = Runs(store)
        store.rename(run_id(1), "an old run")
        store.tag([run_id(1)], add="old")
        (run,) = stored.list(RunFilter(tag="old", text="AN OLD"))
        assert (run.name, run.note, run.tags) == ("an old run", None, ("old",))
        ((node,),) = (one.nodes for one in stored.rounds(run_id(1)))
        assert (node.text, node.redraw_fallback) == ("a", False)
    assert path.with_name("speclens.schema-0002.duckdb").is_file()


def test_a_database_of_the_third_schema_reads_its_runs_and_positions_as_not_measured(path: Path) -> None:
    _first_schema(path)
    engine = connect(path)
    old = {
        name: value
        for name, value in dataclasses.asdict(summary()).items()
        if name not in {"distortion_kl", "distortion_tv", "escaped_mass", "overshoot", "distortion_s"}
        and not name.startswith("distortion_")
    }
    with engine.connect() as connection:
        migrate.upgrade(connection, "0003")
        connection.exec_driver_sql(
            "INSERT INTO rounds "
            "SELECT run_id, 0, 0, 'bonus', 1, 1, 0, 0, 0, 1, 1, '[5]', '[\"a\"]', 0, 0, 0, 0, 0, 0 FROM runs"
        )
        connection.exec_driver_sql("INSERT INTO positions SELECT run_id, 0, 0, -1, 0.25, NULL FROM runs")
        connection.exec_driver_sql("INSERT INTO top_tokens SELECT run_id, 0, 0, 0, 5, 'a', 0.75, NULL FROM runs")
        connection.exec_driver_sql(f"UPDATE runs SET summary_json = '{json.dumps(old)}'")
        connection.commit()
    engine.dispose()
    with Store(path) as store:
        stored = Runs(store)
        (run,) = stored.list()
        assert run.summary is not None
        assert run.summary.output_tokens == 6
        assert (run.summary.distortion_kl, run.summary.distortion_positions, run.summary.distortion_s) == (None,) * 3
        (one,) = stored.rounds(run_id(1))
        assert one.distortion_s is None
        assert one.positions == (Position(-1, (TopToken(5, "a", 0.75, None),), 0.25, None),)
        assert run.spec == spec()
    assert path.with_name("speclens.schema-0003.duckdb").is_file()
