"""The table of runs: its rows, and a small component that sorts, selects and opens by click or key.

Streamlit's own table sorts only the rows in view and identifies a row by its position; this table reports the column to
sort by (in SQL, over every run) and run ids, so a selection stays with its runs when rows move. Its script writes text
only with ``textContent``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from core.results.glossary import GLOSSARY
from pages.ui.kit import numbers, palette
from pages.ui.kit.glyphs import plain_glyphs
from storage.queries import StoredRun

PROMPT_LENGTH = 70
PAIR_LENGTH = 34
REASON_LENGTH = 80
TIP_LENGTH = 600
NAME_LENGTH = 60
NOTE_LENGTH = 80
TAGS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``sort``: the sort key, None if it can't be sorted; ``extra``: left out on narrow screens unless
    chosen; ``whole``: the value of which ``text`` shows a part, for the cell's tooltip."""

    label: str
    sort: str | None
    text: Callable[[StoredRun], str]
    tip: str = ""
    number: bool = False
    extra: bool = False
    whole: Callable[[StoredRun], str | None] | None = None


@dataclass(frozen=True, slots=True)
class Clicked:
    """Clicks in the table: the heading to sort by, the run to open, and the selected runs among the rows in view."""

    sort: str | None = None
    open: str | None = None
    selected: tuple[str, ...] | None = None


def _metric(name: str, write: Callable[[Any], str], extra: bool = False) -> Column:
    metric = GLOSSARY[name]
    return Column(
        metric.label,
        name,
        lambda run: write(getattr(run.summary, name)) if run.summary else numbers.NOTHING,
        f"{metric.definition} Unit: {metric.unit}.",
        number=True,
        extra=extra,
    )


def line(text: str, length: int) -> str:
    """The start of a text on one line, with invisible characters made visible; not escaped."""
    flat = " ".join(text.split())
    return plain_glyphs(flat[:length]).replace("␣", " ") + ("…" if len(flat) > length else "")


def middle(text: str, length: int) -> str:
    """A name with its middle left out where it is longer than ``length``: both ends of a path tell most."""
    if len(text) <= length:
        return text
    head = length // 3
    return f"{text[:head]}…{text[head + 1 - length :]}"


def _tags(run: StoredRun) -> str:
    more = f" +{len(run.tags) - TAGS_SHOWN}" if len(run.tags) > TAGS_SHOWN else ""
    return ", ".join(line(tag, NAME_LENGTH) for tag in run.tags[:TAGS_SHOWN]) + more


COLUMNS: dict[str, Column] = {
    "submitted": Column(
        "Submitted", "submitted_at", lambda run: numbers.moment(run.submitted_at), "When Run was pressed, local time."
    ),
    "status": Column("Status", "status", lambda run: palette.STATUSES[run.status].label),
    "prompt": Column(
        "Prompt",
        "prompt",
        lambda run: line(run.spec.request.prompt, PROMPT_LENGTH),
        "The prompt's beginning, after the run's name and before its tags where it has any.",
        whole=lambda run: run.spec.request.prompt,
    ),
    "pair": Column("Pair", "pair", lambda run: middle(run.pair, PAIR_LENGTH), extra=True, whole=lambda run: run.pair),
    "drafter": Column("Drafter", "drafter", lambda run: run.drafter),
    "shape": Column("Shape", "shape", lambda run: run.shape),
    "rule": Column("Rule", "rule", lambda run: run.rule, extra=True),
    "temperature": Column(
        "T", "temperature", lambda run: f"{run.spec.request.sampling.temperature:g}", "Temperature.", number=True
    ),
    "output_tokens": _metric("output_tokens", numbers.quantity, extra=True),
    "tokens_per_second": _metric("tokens_per_second", lambda value: numbers.quantity(value, 1)),
    "tokens_per_round": _metric("tokens_per_round", numbers.quantity),
    "path_acceptance": _metric("path_acceptance", numbers.rate, extra=True),
    "duration": Column(
        "Duration",
        "duration",
        lambda run: numbers.seconds(run.duration_s),
        "From leaving the queue to the end.",
        number=True,
    ),
    "name": Column("Name", "name", lambda run: line(run.name or "", NAME_LENGTH)),
    "tags": Column("Tags", None, _tags),
    "note": Column("Note", None, lambda run: line(run.note or "", NOTE_LENGTH), whole=lambda run: run.note),
    "started": Column("Started", "started_at", lambda run: numbers.moment(run.started_at), "When it left the queue."),
    "ended": Column("Ended", "ended_at", lambda run: numbers.moment(run.ended_at)),
    "stop_reason": Column("Stop", "stop_reason", lambda run: (run.stop_reason or numbers.NOTHING).replace("_", " ")),
    "reason": Column(
        "Failure reason",
        None,
        lambda run: line(run.error or "", REASON_LENGTH) or numbers.NOTHING,
        "Why the run failed or was interrupted.",
        whole=lambda run: run.error,
    ),
    "device": Column(
        "Device",
        None,
        lambda run: line(run.fingerprint.device, PAIR_LENGTH) if run.fingerprint else numbers.NOTHING,
        "Device that decoded, with its number of threads on the CPU.",
        whole=lambda run: run.fingerprint.device if run.fingerprint else None,
    ),
    "seed": Column("Seed", "seed", lambda run: str(run.spec.request.seed), number=True),
    "max_new_tokens": Column(
        "Max new tokens",
        "max_new_tokens",
        lambda run: numbers.quantity(run.spec.request.stops.max_new_tokens),
        "Limit on the output's length.",
        number=True,
    ),
    "rounds": _metric("rounds", numbers.quantity),
    "draft_acceptance_rate": _metric("draft_acceptance_rate", numbers.rate),
    "accepted_length": _metric("accepted_length", numbers.quantity),
    "distortion_kl": _metric("distortion_kl", numbers.nats),
    "distortion_tv": _metric("distortion_tv", numbers.rate),
    "ttft_s": _metric("ttft_s", numbers.seconds),
    "tpot_s": _metric("tpot_s", numbers.seconds),
    "e2e_s": _metric("e2e_s", numbers.seconds),
    "peak_memory_bytes": _metric("peak_memory_bytes", numbers.size),
    "run_id": Column("Run id", "run_id", lambda run: run.run_id),
    "session": Column("Session", None, lambda run: run.session, "The app process that took the run."),
}
"""All columns, by their names in links."""

DEFAULT: tuple[str, ...] = tuple(COLUMNS)[: tuple(COLUMNS).index("name")]
"""Columns shown by default, in order."""

SORTS = frozenset(column.sort for column in COLUMNS.values() if column.sort)
"""Sort keys that this table offers."""

ASCENDING_FIRST = frozenset({"pair", "prompt", "drafter", "shape", "rule", "name", "status", "stop_reason"})
"""Headings of texts, whose first click sorts in ascending order."""

_SCRIPT = Path(__file__).with_name("tables.js").read_text(encoding="utf-8")


def _component() -> Any:
    # Mounted in the page's own tree, so that the one style sheet serves it too.
    return component("speclens.runs", html='<div class="sl-table"></div>', js=_SCRIPT, isolate_styles=False)


def runs_table(
    runs: Sequence[StoredRun], sort: str, descending: bool, columns: Sequence[str], selected: Collection[str]
) -> Clicked:
    """Draw the table with these columns, with the ``selected`` runs ticked; return the clicks since the last call."""
    chosen = [(name, COLUMNS[name]) for name in columns]
    usual = tuple(columns) == DEFAULT
    result = _component()(
        key="runs_table",
        data={
            "columns": [
                {
                    "id": name,
                    "label": c.label,
                    "sort": c.sort,
                    "tip": c.tip,
                    "number": c.number,
                    "extra": c.extra and usual,
                }
                for name, c in chosen
            ],
            "rows": [_row(run, [c for _, c in chosen], run.run_id in selected) for run in runs],
            "sort": sort,
            "descending": descending,
        },
        on_sort_change=lambda: None,
        on_open_change=lambda: None,
        on_select_change=lambda: None,
    )
    picked = result.select
    return Clicked(result.sort, result.open, None if picked is None else tuple(picked))


def _row(run: StoredRun, columns: Sequence[Column], selected: bool) -> dict[str, Any]:
    cells = [column.text(run) for column in columns]
    wholes = [line(column.whole(run) or "", TIP_LENGTH) if column.whole else "" for column in columns]
    return {
        "id": run.run_id,
        "status": run.status,
        "archived": run.archived,
        "selected": selected,
        "cells": cells,
        "tips": ["" if whole == cell else whole for cell, whole in zip(cells, wholes, strict=True)],
        "name": line(run.name or "", NAME_LENGTH),
        "tags": [line(tag, NAME_LENGTH) for tag in run.tags[:TAGS_SHOWN]],
        "more": max(0, len(run.tags) - TAGS_SHOWN),
    }
