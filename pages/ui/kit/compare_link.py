"""The choice of runs as a link: ``?runs=a,b,c&base=a``. Links are user input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pages.ui.kit.runs import valid_id
from pages.ui.kit.sides import MOST

RUNS, BASE = "runs", "base"


@dataclass(frozen=True, slots=True)
class Link:
    """Choice of a link: its runs in order, possibly with repeats; ``base`` is one of them, None without runs.

    ``refused``: number of entries that are not run ids; ``left_out``: number of entries beyond the limit.
    """

    runs: tuple[str, ...]
    base: str | None
    refused: int = 0
    left_out: int = 0


def read(runs: str | None, base: str | None) -> Link:
    """The link's choice; entries that are not run ids are dropped and counted."""
    asked = [part.strip() for part in (runs or "").split(",") if part.strip()]
    good = [part for part in asked if valid_id(part)]
    return make(good[:MOST], base, refused=len(asked) - len(good), left_out=max(0, len(good) - MOST))


def make(runs: Sequence[str], base: str | None, refused: int = 0, left_out: int = 0) -> Link:
    """A choice of runs; a baseline that is not among them is replaced by the first run."""
    return Link(tuple(runs), base if base in runs else next(iter(runs), None), refused, left_out)


def query(runs: Sequence[str], base: str | None = None) -> dict[str, str]:
    """The choice as query parameters of the Compare page."""
    link = make(runs, base)
    return {RUNS: ",".join(link.runs)} | ({BASE: link.base} if link.base else {})
