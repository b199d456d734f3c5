"""Recovery of what a dead process left behind, when the file is opened."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, delete, select, update

from core.records import Ended, Round, Started, Summary, ended_early
from core.results.metrics import summarise
from storage.database import Database
from storage.round_rows import read_rounds
from storage.run_rows import ended_row, fingerprint_from
from storage.schema import CHILDREN, fingerprints, rounds, runs, tags
from storage.values import aware, required

log = logging.getLogger(__name__)


def recover(database: Database) -> list[str]:
    """Ends runs that a dead process left queued or running as ``interrupted``, with a summary of their stored rounds,
    and sweeps the rest of an interrupted deletion: all of it in one transaction, or nothing. Returns the interrupted
    runs' ids."""
    with database.write() as connection:
        left = connection.execute(select(runs).where(runs.c.status.in_(("queued", "running"))).order_by(runs.c.run_id))
        rows = list(left.mappings())
        for row in rows:
            _interrupt(connection, row)
        sweep(connection)
    return [row["run_id"] for row in rows]


def _interrupt(connection: Connection, row: Any) -> None:
    kept: list[Round] = []
    summary = None
    if row["started_at"] is None:
        error = "The app stopped before this run left the queue: run it again."
        ended = ended_early(kept, "interrupted", error)
    else:
        error = "The app stopped while this run was decoding; "
        try:
            kept = read_rounds(connection, row["run_id"])
            error += f"its first {len(kept)} rounds are kept."
            ended = ended_early(kept, "interrupted", error, prefill_s=row["prefill_s"] or 0.0)
            summary = _summary(connection, row, kept, ended)
        except (ValueError, TypeError, ArithmeticError, LookupError) as fault:
            # one damaged run must not keep the file from being opened
            log.error("the interrupted run %s cannot be read", row["run_id"], exc_info=fault)
            kept, error = [], "The app stopped while this run was decoding. Its rounds cannot be read."
            ended = ended_early(kept, "interrupted", error, prefill_s=row["prefill_s"] or 0.0)
    change = ended_row(ended, summary, _last_sign(row, kept), None)
    connection.execute(update(runs).where(runs.c.run_id == row["run_id"]).values(**change))


def _summary(connection: Connection, row: Any, kept: list[Round], ended: Ended) -> Summary:
    environment = connection.execute(select(fingerprints).where(fingerprints.c.run_id == row["run_id"])).mappings()
    found = environment.first()
    started = Started(
        request=ended.request,
        prompt_tokens=row["prompt_tokens"],
        prefill_s=required(row["prefill_s"]),
        recomputed_share=row["recomputed_share"],
        fingerprint=fingerprint_from(found) if found is not None else None,
    )
    return summarise(started, kept, ended)


def _last_sign(row: Any, kept: list[Round]) -> datetime:
    """The last moment at which the run is known to have been alive: its end, rather than the time of the next start."""
    if row["started_at"] is None:
        last = row["submitted_at"]
    else:
        # a round's time counts from the run's acceptance, and ``started_at`` was taken when the prefill was over: what
        # lies between ``started_at`` and the last round is that time without the prefill
        decoded = kept[-1].ended_at_s - required(row["prefill_s"]) if kept else 0.0
        # false for NaN as well: a time that was not finite counts as 0
        last = row["started_at"] + timedelta(seconds=decoded if decoded > 0 else 0.0)
    moment = aware(last)
    assert moment is not None
    return moment


def sweep(connection: Connection) -> int:
    """Deletes parts whose run was deleted; returns the number of such runs."""
    known = select(runs.c.run_id)
    parts = select(rounds.c.run_id).union(select(fingerprints.c.run_id), select(tags.c.run_id)).subquery()
    orphans = list(connection.execute(select(parts.c.run_id).where(parts.c.run_id.not_in(known))).scalars())
    if orphans:
        for table in CHILDREN:
            delete_part(connection, table, orphans)
    return len(orphans)


def delete_part(connection: Connection, table: Table, run_ids: list[str]) -> None:
    """Deletes the runs' rows of one table, all at once, since that costs DuckDB far less for thousands of runs than
    many smaller deletions."""
    connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))
