"""Migrations of a database file to the newest schema, forward only, after copying the file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from duckdb_sqlalchemy import checkpoint
from sqlalchemy import Connection, Engine, inspect

from core.errors import StorageUnavailable
from storage.connect import connect, reason

SCRIPTS = Path(__file__).parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def head() -> str:
    """The schema version that this code writes, such as ``0002``."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None, "storage/migrations/versions is empty"
    return newest


def version(connection: Connection) -> str | None:
    """The schema version of an open database; None when it has no SpecLens tables yet."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Runs the migrations up to ``revision`` on a connection without an open transaction, all in one transaction."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def open_current(path: Path) -> Engine:
    """An engine on ``path`` with the newest schema; a new file is created, an older one is copied and then migrated.

    Raises :class:`StorageUnavailable`: locked, not a SpecLens database, a newer schema, no room for the copy.
    """
    engine = connect(path)
    try:
        found = _checked(engine, path)
        if found == head():
            return engine
        if found is not None:
            # the file must be closed while it is copied: closing any handle of it releases this process's POSIX lock
            with engine.connect() as connection:
                checkpoint(connection)
            engine.dispose()
            copy = _copy(path, found)
            engine = connect(path)
        else:
            copy = None
        _migrate(engine, path, found, copy)
        return engine
    except BaseException:
        engine.dispose()
        raise


def _checked(engine: Engine, path: Path) -> str | None:
    with engine.connect() as connection:
        found = version(connection)
        tables = inspect(connection).get_table_names()
    if found is None and tables:
        raise StorageUnavailable(
            f"{path} is a DuckDB database, but not one of SpecLens (it has a table {tables[0]!r}): name another file."
        )
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in known:
        raise StorageUnavailable(
            f"{path} was written by a newer SpecLens: its schema is {found} and this one knows up to {head()}. "
            "Update SpecLens, or name another file."
        )
    return found


def _copy(path: Path, found: str) -> Path:
    """Copies the closed file to the same folder, completely or not at all."""
    target = path.with_name(f"{path.stem}.schema-{found}{path.suffix}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}.schema-{found}-{number}{path.suffix}")
    partial = target.with_name(target.name + ".partial")
    try:
        shutil.copyfile(path, partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageUnavailable(
            f"{path} has the older schema {found} and could not be copied before its migration ({error.strerror}): "
            f"make room for {path.stat().st_size / 1e6:.0f} MB beside it and start again. Nothing was changed."
        ) from error
    return target


def _migrate(engine: Engine, path: Path, found: str | None, copy: Path | None) -> None:
    try:
        with engine.connect() as connection:
            upgrade(connection)
            connection.commit()
            checkpoint(connection)
    except Exception as error:
        kept = f" The copy made before is {copy}." if copy else ""
        step = f"from schema {found} to {head()}" if found else f"to schema {head()}"
        raise StorageUnavailable(
            f"{path} could not be brought {step} ({reason(error)}); it is unchanged.{kept}"
        ) from error
