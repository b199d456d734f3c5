"""Labels of a run (name, note, tags): how long they may be, and how they are stored."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select, update

from core.errors import BadInput
from storage.database import insert_rows
from storage.schema import runs, tags
from storage.values import text

MAX_NAME = 200
"""Longest name, in characters."""

MAX_NOTE = 20_000
"""Longest note, in characters."""

MAX_TAG = 50
"""Longest tag, in characters."""

MAX_TAGS = 20
"""Most tags of one run."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A run's name, note and tags, whether it is archived, and its status."""

    status: str
    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] = ()
    archived: bool = False


def clean_name(name: str | None) -> str | None:
    """The name on one line, without surrounding spaces; None, which removes a name, for None and for an empty one.

    Raises BadInput when it is longer than :data:`MAX_NAME`.
    """
    return _bounded("A name", _one_line(name or ""), MAX_NAME) or None


def clean_note(note: str | None) -> str | None:
    """The note without surrounding white space; None, which removes a note, for None and for an empty one.

    Raises BadInput when it is longer than :data:`MAX_NOTE`.
    """
    return _bounded("A note", text(note or "").strip(), MAX_NOTE) or None


def clean_tags(given: str | Iterable[str]) -> tuple[str, ...]:
    """The tags, each once and on one line, in alphabetical order.

    Raises BadInput for an empty tag and for one longer than :data:`MAX_TAG`.
    """
    found = {_bounded("A tag", _one_line(tag), MAX_TAG) for tag in ([given] if isinstance(given, str) else given)}
    if "" in found:
        raise BadInput("A tag cannot be empty: type a word for it.")
    return tuple(sorted(found))


def _one_line(value: str) -> str:
    """``value`` with each run of white space, line breaks included, as one space, and without control characters."""
    spaced = " ".join(text(value).split())
    return "".join(character for character in spaced if unicodedata.category(character) != "Cc")


def _bounded(what: str, value: str, most: int) -> str:
    if len(value) > most:
        raise BadInput(f"{what} has at most {most:,} characters, and this one has {len(value):,}: shorten it.")
    return value


def write_label(connection: Connection, run_id: str, **changes: str | None) -> None:
    """Sets ``name`` or ``note`` of a run. Raises BadInput when there is no such run."""
    if connection.execute(update(runs).where(runs.c.run_id == run_id).values(**changes)).rowcount != 1:
        raise BadInput(f"There is no run {run_id}: it was deleted, or its link is wrong.")


def write_tags(connection: Connection, run_ids: Sequence[str], add: Collection[str], remove: Collection[str]) -> None:
    """Removes the tags ``remove`` from the runs and adds those of ``add`` that they do not have yet.

    Raises BadInput when a run would have more than :data:`MAX_TAGS`; the caller must roll back then.
    """
    if remove:
        connection.execute(delete(tags).where(tags.c.run_id.in_(run_ids), tags.c.tag.in_(remove)))
    if not add:
        return
    present = {(row.run_id, row.tag) for row in connection.execute(select(tags).where(tags.c.run_id.in_(run_ids)))}
    insert_rows(connection, tags, [(run_id, tag) for run_id in run_ids for tag in add if (run_id, tag) not in present])
    count = func.count(tags.c.tag)
    over = select(tags.c.run_id, count).where(tags.c.run_id.in_(run_ids)).group_by(tags.c.run_id)
    for run_id, found in connection.execute(over.having(count > MAX_TAGS).limit(1)):
        raise BadInput(f"A run has at most {MAX_TAGS} tags, and {run_id} would have {found}: take some away first.")


def read_tags(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The tags of those runs that have any, in alphabetical order."""
    found: dict[str, list[str]] = {}
    query = select(tags).where(tags.c.run_id.in_(run_ids)).order_by(tags.c.run_id, tags.c.tag)
    for row in connection.execute(query):
        found.setdefault(row.run_id, []).append(row.tag)
    return {run_id: tuple(had) for run_id, had in found.items()}


def read_labels(connection: Connection, run_ids: Sequence[str]) -> dict[str, Labels]:
    """The labels of those runs that exist."""
    tagged = read_tags(connection, run_ids)
    named = select(runs.c.run_id, runs.c.status, runs.c.name, runs.c.note, runs.c.archived)
    found = connection.execute(named.where(runs.c.run_id.in_(run_ids)))
    return {
        row.run_id: Labels(row.status, row.name, row.note, tagged.get(row.run_id, ()), row.archived) for row in found
    }
