"""``python -m storage export|info``: the database from the command line, while the app is closed.

Exit codes, with a sentence on stderr: 0 done · 1 the database cannot be opened or written · 2 wrong option or value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_args

import typer
from sqlalchemy import func, select

from core.errors import BadInput, SpecLensError
from core.records import RunStatus
from storage.connect import default_path, refusal
from storage.export.bundle import write_bundle, write_table
from storage.export.csv import write_dictionary
from storage.export.dictionary import FORMATS, TABLES
from storage.export.files import Files
from storage.filters import RunFilter
from storage.inspection import log_of
from storage.migrate import version
from storage.queries import Runs
from storage.schema import candidates, rounds
from storage.store import Store

app = typer.Typer(
    help="Export and inspect stored runs while the app is closed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Db = Annotated[Path | None, typer.Option(help="The database file; the default is the app's own.", show_default=False)]
Many = list[str] | None


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder to write to; it is made if it is missing.", show_default=False)],
    db: Db = None,
    status: Annotated[Many, typer.Option(help="Only runs of this status; may stand several times.")] = None,
    pair: Annotated[Many, typer.Option(help="Only runs of this pair; may stand several times.")] = None,
    drafter: Annotated[Many, typer.Option(help="Only runs with this drafter.")] = None,
    shape: Annotated[Many, typer.Option(help="Only runs of this shape.")] = None,
    rule: Annotated[Many, typer.Option(help="Only runs under this rule.")] = None,
    text: Annotated[str | None, typer.Option(help="Only runs with this text in prompt, output or id.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived runs too.")] = False,
    bom: Annotated[bool, typer.Option("--bom", help="Begin files with a byte order mark, as Excel wants.")] = False,
    as_zip: Annotated[bool, typer.Option("--zip", help="One zip file rather than one file per table.")] = False,
    tag: Annotated[Many, typer.Option(help="Only runs with this tag; may stand several times.")] = None,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
) -> None:
    """Writes runs, rounds and candidates of every run that matches, and their data dictionary: all of it or nothing."""
    if format not in FORMATS:
        raise BadInput(f"{format!r} is no format: write one of {', '.join(FORMATS)}.")
    if bom and format == "parquet":
        raise BadInput("A byte order mark is for CSV: leave out --bom, or --format parquet.")
    known = get_args(RunStatus)
    if wrong := [value for value in status or [] if value not in known]:
        raise BadInput(f"{wrong[0]!r} is no status: write one of {', '.join(known)}.")
    chosen = RunFilter(
        status=status,
        pair=pair,
        drafter=drafter,
        shape=shape,
        rule=rule,
        text=text,
        tag=tag,
        archived=None if archived else False,
    )
    with _opened(db) as store:
        count = Runs(store).count(chosen)
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpecLensError(f"{out} cannot be written: {refusal(error)}.") from error
        with Files(out) as files:
            if as_zip:
                write_bundle(store, chosen, files.new("speclens.zip"), bom, format)
            else:
                write_dictionary(format, files.new("data_dictionary.csv"), bom)
                for table in TABLES:
                    write_table(store, chosen, table, format, files.new(f"{table}.{format}"), bom)
    typer.echo(f"{count} runs exported to {out}.")


@app.command()
def info(db: Db = None) -> None:
    """Says what the database holds."""
    with _opened(db) as store:
        found = Runs(store)
        with store.database.read() as connection:
            schema = version(connection)
            rows = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (rounds, candidates)
            }
        typer.echo(f"file        {store.path} ({store.path.stat().st_size / 1e6:.1f} MB)")
        typer.echo(f"schema      {schema}")
        everything = found.count(RunFilter(archived=None))
        by_status = {name: found.count(RunFilter(status=name, archived=None)) for name in get_args(RunStatus)}
        statuses = ", ".join(f"{count} {name}" for name, count in by_status.items() if count)
        typer.echo(f"runs        {everything}" + (f" ({statuses})" if statuses else ""))
        for name, count in rows.items():
            typer.echo(f"{name:<12}{count}")


def _opened(db: Path | None) -> Store:
    path = db or default_path()
    if not os.path.lexists(path) and not log_of(path).exists():
        raise BadInput(f"There is no database {path}: name one with --db.")
    return Store(path)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code; errors are one sentence on stderr."""
    run: Callable[..., object] = typer.main.get_command(app)
    try:
        run(args=arguments, prog_name="python -m storage")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    except SpecLensError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
