"""The filter of stored runs, shared by lists, counts and exports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, or_, select

from storage.schema import runs, tags
from storage.values import naive_utc, text

OneOrMore = str | Collection[str] | None
"""One value, any of several, or None (or an empty collection) for all."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter whose conditions must all hold. ``tag``: runs with this tag, or any of several. ``text``: searched for,
    ignoring case, in name, note, prompt, output and run id. ``since`` ≤ time of submission < ``until``. ``archived``:
    None means archived or not."""

    status: OneOrMore = None
    pair: OneOrMore = None
    drafter: OneOrMore = None
    shape: OneOrMore = None
    rule: OneOrMore = None
    text: str | None = None
    session: OneOrMore = None
    since: datetime | None = None
    until: datetime | None = None
    archived: bool | None = False
    tag: OneOrMore = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter as SQL conditions on ``runs``."""
        found: list[ColumnElement[bool]] = []
        for name in ("status", "pair", "drafter", "shape", "rule", "session"):
            if wanted := getattr(self, name):
                found.append(runs.c[name].in_(_values(wanted)))
        if self.tag:
            found.append(runs.c.run_id.in_(select(tags.c.run_id).where(tags.c.tag.in_(_values(self.tag)))))
        if self.text:
            sought = text(self.text)
            columns = (runs.c.name, runs.c.note, runs.c.prompt, runs.c.text, runs.c.run_id)
            found.append(or_(*(column.icontains(sought, autoescape=True) for column in columns)))
        if self.since is not None:
            found.append(runs.c.submitted_at >= naive_utc(self.since))
        if self.until is not None:
            found.append(runs.c.submitted_at < naive_utc(self.until))
        if self.archived is not None:
            found.append(runs.c.archived.is_(self.archived))
        return found


def _values(wanted: str | Collection[str]) -> list[str]:
    return [text(value) for value in ([wanted] if isinstance(wanted, str) else wanted)]
