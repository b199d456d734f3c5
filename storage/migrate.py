"""Migrations of a database file to the newest schema, forward only, after copying the file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from duckdb_sqlalchemy import checkpoint
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import DBAPIError

from core.errors import StorageUnavailable
from storage.connect import connect, reason
from storage.copies import keep_version

log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine on a file of the newest schema; ``copy`` is of the version before its migration, if there was one."""

    engine: Engine
    copy: Path | None


def open_current(path: Path) -> Opened:
    """Opens ``path`` with the newest schema; a new file is created, an older one is copied and then migrated.

    Raises :class:`StorageUnavailable` (not a SpecLens database, a newer schema, no room for the copy, a migration that
    failed) and the errors of DuckDB for ``connect.opening``.
    """
    engine = connect(path)
    try:
        found = _checked(engine, path)
        if found == head():
            return Opened(engine, None)
        if found is not None:
            engine.dispose()  # the file must be closed while it is copied
            copy = _kept(path, found)
            engine = connect(path)
        else:
            copy = None
        _migrate(engine, path, found, copy)
        return Opened(engine, copy)
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


def _kept(path: Path, found: str) -> Path:
    try:
        return keep_version(path, found)
    except OSError as error:
        raise StorageUnavailable(
            f"{path} has the older schema {found} and could not be copied before its migration ({error.strerror}): "
            f"make room for {path.stat().st_size / 1e6:.0f} MB beside it and start again. Nothing was changed."
        ) from error


def _migrate(engine: Engine, path: Path, found: str | None, copy: Path | None) -> None:
    try:
        with engine.connect() as connection:
            upgrade(connection)
            connection.commit()
    except Exception as error:
        kept = f" The copy made before is {copy}." if copy else ""
        step = f"from schema {found} to {head()}" if found else f"to schema {head()}"
        raise StorageUnavailable(
            f"{path} could not be brought {step} ({reason(error)}); it is unchanged.{kept}"
        ) from error
    try:
        with engine.connect() as connection:
            checkpoint(connection)
    except DBAPIError as error:
        log.warning("the migration of %s stays in the log for now: %s", path, reason(error))
