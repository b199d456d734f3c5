"""Reading stored runs: filter, sort and pages as SQL; records come back as they were saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select

from core.errors import BadInput, StorageUnavailable
from core.records import Fingerprint, Round, RunStatus, Summary
from core.results.matching import matched
from core.results.traces import Burst
from core.types import RunSpec
from storage.connect import reason
from storage.filters import RunFilter
from storage.labels import Labels, read_labels, read_tags
from storage.round_rows import read_bursts, read_rounds
from storage.run_rows import SUMMARY_COLUMNS, fingerprint_from, summary_from
from storage.schema import fingerprints, runs, tags
from storage.store import Store
from storage.values import aware, text

SORTABLE = frozenset(
    {"run_id", "name", "submitted_at", "started_at", "ended_at", "status", "pair", "drafter", "shape", "rule", "prompt"}
    | {"seed", "temperature", "max_new_tokens", "stop_reason", "duration"}
    | set(SUMMARY_COLUMNS)
)
"""What a list can be sorted by: columns, and ``duration`` (from start to end)."""

ALL = RunFilter()
"""Every run that is not archived."""

MAX_FACETS = 200
"""Most distinct values that a facet lists."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run as stored. ``pair``, ``drafter``, ``shape`` and ``rule`` are the texts that the filter takes; moments are
    UTC; ``rounds_missing``: rounds that could not be stored, None when unknown; ``name``, ``note`` and ``tags`` are its
    labels (``storage.labels``)."""

    run_id: str
    session: str
    spec: RunSpec
    status: RunStatus
    pair: str
    drafter: str
    shape: str
    rule: str
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    fingerprint: Fingerprint | None
    summary: Summary | None
    text: str | None
    stop_reason: str | None
    error: str | None
    recomputed_share: float | None
    rounds_missing: int | None
    archived: bool
    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float | None:
        """Seconds from start to end; None without one of them."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Facets:
    """The distinct values of the stored runs, most frequent first, for a filter to offer."""

    status: tuple[str, ...]
    pair: tuple[str, ...]
    drafter: tuple[str, ...]
    shape: tuple[str, ...]
    rule: tuple[str, ...]
    session: tuple[str, ...]
    tag: tuple[str, ...] = ()


class Runs:
    """The stored runs of one store. Every method is one short transaction on the calling thread's connection and raises
    StorageUnavailable when the file cannot be read."""

    def __init__(self, store: Store) -> None:
        self._database = store.database

    def list(
        self,
        filter: RunFilter = ALL,
        sort: str = "submitted_at",
        descending: bool = True,
        limit: int | None = 100,
        offset: int = 0,
    ) -> list[StoredRun]:
        """A page of the matching runs; runs without a value of ``sort`` come last, ties are sorted by run id.

        Raises BadInput for a column that is not in :data:`SORTABLE` and for a negative limit or offset.
        """
        if sort not in SORTABLE:
            raise BadInput(f"Runs cannot be sorted by {sort!r}: use one of {', '.join(sorted(SORTABLE))}.")
        if offset < 0 or (limit is not None and limit < 0):
            raise BadInput(f"A page starts at 0 or later and is not negative in size: offset {offset}, limit {limit}.")
        column = runs.c.ended_at - runs.c.started_at if sort == "duration" else runs.c[sort]
        first = column.desc() if descending else column.asc()
        tie = runs.c.run_id.desc() if descending else runs.c.run_id.asc()
        page = select(runs.c.run_id).where(*filter.conditions()).order_by(first.nulls_last(), tie)
        return self._read(page.limit(limit).offset(offset))

    def count(self, filter: RunFilter = ALL) -> int:
        """The number of matching runs."""
        with self._database.read() as connection:
            return connection.execute(select(func.count()).select_from(runs).where(*filter.conditions())).scalar_one()

    def ids(self, filter: RunFilter = ALL, limit: int | None = None) -> list[str]:
        """The ids of the matching runs, newest first, at most ``limit``."""
        newest = select(runs.c.run_id).where(*filter.conditions()).order_by(runs.c.submitted_at.desc())
        with self._database.read() as connection:
            return list(connection.execute(newest.order_by(runs.c.run_id.desc()).limit(limit)).scalars())

    def labels(self, run_ids: Sequence[str]) -> dict[str, Labels]:
        """The labels of those runs that exist, by run id."""
        with self._database.read() as connection:
            return read_labels(connection, [text(run_id) for run_id in run_ids])

    def get(self, run_id: str) -> StoredRun | None:
        """The run with this id, or None."""
        found = self._read(select(runs.c.run_id).where(runs.c.run_id == text(run_id)))
        return found[0] if found else None

    def rounds(self, run_id: str, start: int = 0, limit: int | None = None) -> list[Round]:
        """The run's rounds from index ``start``, at most ``limit``: equal to those written, lone surrogates apart."""
        with self._database.read() as connection, self._decoding(run_id):
            return read_rounds(connection, text(run_id), start, limit)

    def plain_for(self, fingerprint: Fingerprint, session: str) -> StoredRun | None:
        """The session's latest done plain run that ``fingerprint`` is matched with (``results.matching``), or None."""
        like = (
            select(runs.c.run_id)
            .join(fingerprints, fingerprints.c.run_id == runs.c.run_id)
            .where(
                runs.c.session == text(session),
                runs.c.status == "done",
                runs.c.drafter == "none",
                fingerprints.c.target_hash == fingerprint.target_hash,
                fingerprints.c.prompt_hash == fingerprint.prompt_hash,
            )
            .order_by(runs.c.submitted_at.desc(), runs.c.run_id.desc())
        )
        for run in self._read(like):
            if run.fingerprint is not None and matched(fingerprint, run.fingerprint):
                return run
        return None

    def of_spec(self, spec: RunSpec, session: str) -> StoredRun | None:
        """The session's latest done run that was asked exactly ``spec``, or None."""
        like = (
            select(runs.c.run_id)
            .where(
                runs.c.session == text(session),
                runs.c.status == "done",
                runs.c.spec_json == spec.model_dump_json(),
            )
            .order_by(runs.c.submitted_at.desc(), runs.c.run_id.desc())
            .limit(1)
        )
        return next(iter(self._read(like)), None)

    def bursts(self, run_id: str) -> list[Burst]:
        """The run's bursts: what it committed and when, without its candidates; empty for an unknown id."""
        with self._database.read() as connection, self._decoding(run_id):
            return read_bursts(connection, text(run_id))

    def facets(self) -> Facets:
        """The distinct values of each facet among all runs, archived ones too."""
        with self._database.read() as connection:

            def values(column: ColumnElement[str]) -> tuple[str, ...]:
                count = func.count().label("runs")
                found = select(column, count).group_by(column).order_by(count.desc(), column).limit(MAX_FACETS)
                return tuple(row[0] for row in connection.execute(found))

            found = {name: values(runs.c[name]) for name in Facets.__slots__ if name in runs.c}
            return Facets(**found, tag=values(tags.c.tag))

    def _read(self, chosen: Select[Any]) -> list[StoredRun]:
        """The runs whose ids ``chosen`` selects, in its order. Sorting ids and then fetching their rows is several
        times faster than sorting rows of eighty columns."""
        with self._database.read() as connection:
            ids: Sequence[str] = connection.execute(chosen).scalars().all()
            rows = connection.execute(select(runs).where(runs.c.run_id.in_(ids))).mappings()
            found = {row["run_id"]: row for row in rows}
            environments = connection.execute(select(fingerprints).where(fingerprints.c.run_id.in_(ids))).mappings()
            had = {row["run_id"]: row for row in environments}
            tagged = read_tags(connection, ids)
        read: list[StoredRun] = []
        for run_id in ids:
            with self._decoding(run_id):
                environment = fingerprint_from(had[run_id]) if run_id in had else None
                read.append(_stored(found[run_id], environment, tagged.get(run_id, ())))
        return read

    @contextmanager
    def _decoding(self, run_id: str) -> Iterator[None]:
        """Raises StorageUnavailable where a stored row holds no record of SpecLens."""
        try:
            yield
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            raise StorageUnavailable(
                f"Run {run_id} cannot be read from the database {self._database.path} ({reason(error)}): its rows are "
                "damaged, or another program changed them. Restore a copy of the database."
            ) from error


def _stored(row: Any, fingerprint: Fingerprint | None, tagged: tuple[str, ...]) -> StoredRun:
    submitted_at = aware(row["submitted_at"])
    assert submitted_at is not None
    return StoredRun(
        run_id=row["run_id"],
        session=row["session"],
        spec=RunSpec.model_validate_json(row["spec_json"]),
        status=row["status"],
        pair=row["pair"],
        drafter=row["drafter"],
        shape=row["shape"],
        rule=row["rule"],
        submitted_at=submitted_at,
        started_at=aware(row["started_at"]),
        ended_at=aware(row["ended_at"]),
        fingerprint=fingerprint,
        summary=summary_from(row["summary_json"]),
        text=row["text"],
        stop_reason=row["stop_reason"],
        error=row["error"],
        recomputed_share=row["recomputed_share"],
        rounds_missing=row["rounds_missing"],
        archived=row["archived"],
        name=row["name"],
        note=row["note"],
        tags=tagged,
    )
