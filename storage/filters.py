"""Which runs are meant: one filter for lists, counts and exports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, or_

from storage.schema import runs
from storage.values import naive_utc, text

OneOrMore = str | Collection[str] | None
"""One value, any of several, or None (or none of them) for all."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """All conditions hold together. ``text`` is looked for, ignoring case, in prompt, output and run id; ``since`` and
    ``until`` bound the submission, the latter excluded; ``archived``: None means archived or not."""

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

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter as SQL conditions on ``runs``."""
        found: list[ColumnElement[bool]] = []
        for name in ("status", "pair", "drafter", "shape", "rule", "session"):
            if wanted := getattr(self, name):
                values = [wanted] if isinstance(wanted, str) else list(wanted)
                found.append(runs.c[name].in_([text(value) for value in values]))
        if self.text:
            sought = text(self.text)
            columns = (runs.c.prompt, runs.c.text, runs.c.run_id)
            found.append(or_(*(column.icontains(sought, autoescape=True) for column in columns)))
        if self.since is not None:
            found.append(runs.c.submitted_at >= naive_utc(self.since))
        if self.until is not None:
            found.append(runs.c.submitted_at < naive_utc(self.until))
        if self.archived is not None:
            found.append(runs.c.archived.is_(self.archived))
        return found
