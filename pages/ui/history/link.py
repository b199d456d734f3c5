"""Links to a view of History: search, filters, sort, columns and archived runs as query parameters.

Links are user input: invalid parts are ignored and reported. Links leave out defaults.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Literal, TypeVar

from pages.ui.history.tables import COLUMNS, DEFAULT, SORTS
from pages.ui.kit.palette import STATUSES

Archived = Literal["no", "only", "all"]
T = TypeVar("T", bound=str)

LISTS = ("status", "pair", "drafter", "shape", "rule", "tag")
DAYS = ("since", "until")
ARCHIVED: tuple[Archived, ...] = ("no", "only", "all")
MAX_TEXT = 500
"""Longest search, in characters."""

MAX_VALUE = 300
"""Longest value of a filter, in characters."""

MAX_VALUES = 50
"""Most values of one filter."""

EARLIEST, LATEST = date(2000, 1, 1), date(2099, 12, 31)
"""First and last day that a filter accepts."""


@dataclass(frozen=True, slots=True)
class View:
    """View of the list. ``columns``: names from :data:`pages.ui.history.tables.COLUMNS`, in order."""

    text: str = ""
    status: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    drafter: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    rule: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    since: date | None = None
    until: date | None = None
    archived: Archived = "no"
    sort: str = "submitted_at"
    descending: bool = True
    columns: tuple[str, ...] = DEFAULT


USUAL = View()
NAMES = ("q", *LISTS, *DAYS, "archived", "sort", "order", "columns")
"""The parameters of a link, in order."""


def query(view: View) -> dict[str, list[str]]:
    """The view as query parameters; empty for the default view."""
    found: dict[str, list[str]] = {}
    if view.text:
        found["q"] = [view.text]
    for name in LISTS:
        if values := getattr(view, name):
            found[name] = list(values)
    for name in DAYS:
        if day := getattr(view, name):
            found[name] = [day.isoformat()]
    if view.archived != USUAL.archived:
        found["archived"] = [view.archived]
    if view.sort != USUAL.sort:
        found["sort"] = [view.sort]
    if view.descending != USUAL.descending:
        found["order"] = ["up"]
    if view.columns != USUAL.columns:
        found["columns"] = [",".join(view.columns)]
    return found


def read(asked: Mapping[str, Sequence[str]]) -> tuple[View, list[str]]:
    """The view that the parameters describe, and the ignored parts, each as the end of a sentence."""
    wrong: list[str] = []
    made = {field.name: getattr(USUAL, field.name) for field in fields(View)}
    made["text"] = _text(asked, wrong)
    for name in LISTS:
        made[name] = _values(name, asked.get(name, ()), wrong)
    for name in DAYS:
        made[name] = _day(name, asked, wrong)
    made["archived"] = _one_of("archived", asked, ARCHIVED, USUAL.archived, wrong)
    made["sort"] = _one_of("sort", asked, SORTS, USUAL.sort, wrong)
    made["descending"] = _one_of("order", asked, ("up", "down"), "down", wrong) == "down"
    made["columns"] = _columns(asked, wrong)
    return View(**made), wrong


def _last(asked: Mapping[str, Sequence[str]], name: str) -> str:
    return next(reversed(asked.get(name) or [""]), "")


def _text(asked: Mapping[str, Sequence[str]], wrong: list[str]) -> str:
    text = "".join(one if unicodedata.category(one) not in {"Cc", "Cs"} else " " for one in _last(asked, "q")).strip()
    if len(text) > MAX_TEXT:
        wrong.append(f"a search of {len(text):,} characters, cut to its first {MAX_TEXT}")
    return text[:MAX_TEXT]


def _values(name: str, given: Sequence[str], wrong: list[str]) -> tuple[str, ...]:
    good: list[str] = []
    for value in dict.fromkeys(given):
        known = value in STATUSES if name == "status" else 0 < len(value) <= MAX_VALUE and value.isprintable()
        if known:
            good.append(value)
        else:
            wrong.append(f"{name} {_quoted(value)}")
    if len(good) > MAX_VALUES:
        wrong.append(f"{len(good)} values of {name}, of which the first {MAX_VALUES} are kept")
    return tuple(good[:MAX_VALUES])


def _day(name: str, asked: Mapping[str, Sequence[str]], wrong: list[str]) -> date | None:
    text = _last(asked, name)
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not EARLIEST <= day <= LATEST:
        wrong.append(f"{name} {_quoted(text)}")
        return None
    return day


def _one_of(name: str, asked: Mapping[str, Sequence[str]], known: Collection[T], usual: T, wrong: list[str]) -> T:
    text = _last(asked, name)
    found = next((each for each in known if each == text), None)
    if text and found is None:
        wrong.append(f"{name} {_quoted(text)}")
    return usual if found is None else found


def _columns(asked: Mapping[str, Sequence[str]], wrong: list[str]) -> tuple[str, ...]:
    given = [part.strip() for part in _last(asked, "columns").split(",") if part.strip()]
    bad = [part for part in given if part not in COLUMNS]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        wrong.append(f"the column {_quoted(bad[0])}{more}")
    return tuple(dict.fromkeys(part for part in given if part in COLUMNS)) or DEFAULT


def _quoted(text: str) -> str:
    return f"“{text[:40]}…”" if len(text) > 40 else f"“{text}”"
