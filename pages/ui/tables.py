"""The table of runs: rows for the eye and a small component that sorts and opens by click or key.

Streamlit's own table sorts only the rows in view and names a row by its place; this one sends back the column to sort
by (in SQL, over every run) and the id of the run to open. Its script writes text with ``textContent`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from core.metrics import GLOSSARY
from pages.ui import numbers, palette
from pages.ui.glyphs import plain_glyphs
from storage.queries import StoredRun

PROMPT_LENGTH = 70


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``sort`` is the stored column it sorts by; ``extra`` ones are left out where there is little room."""

    label: str
    sort: str | None
    text: Callable[[StoredRun], str]
    tip: str = ""
    number: bool = False
    extra: bool = False


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


def _prompt(run: StoredRun) -> str:
    text = " ".join(run.spec.request.prompt.split())
    return plain_glyphs(text[:PROMPT_LENGTH]).replace("␣", " ") + ("…" if len(text) > PROMPT_LENGTH else "")


COLUMNS: tuple[Column, ...] = (
    Column(
        "Submitted", "submitted_at", lambda run: numbers.moment(run.submitted_at), "When Run was pressed, local time."
    ),
    Column("Status", "status", lambda run: palette.STATUSES[run.status].label),
    Column("Prompt", "prompt", _prompt),
    Column("Pair", "pair", lambda run: run.pair, extra=True),
    Column("Drafter", "drafter", lambda run: run.drafter),
    Column("Shape", "shape", lambda run: run.shape),
    Column("Rule", "rule", lambda run: run.rule, extra=True),
    _metric("output_tokens", numbers.quantity, extra=True),
    _metric("tokens_per_second", lambda value: numbers.quantity(value, 1)),
    _metric("tokens_per_round", numbers.quantity),
    _metric("path_acceptance", numbers.rate, extra=True),
    _metric("distortion_kl", numbers.nats, extra=True),
    _metric("distortion_tv", numbers.rate, extra=True),
    Column(
        "Duration", None, lambda run: numbers.seconds(run.duration_s), "From leaving the queue to the end.", number=True
    ),
)

_SCRIPT = Path(__file__).with_name("tables.js").read_text(encoding="utf-8")


def _component() -> Any:
    # Mounted in the page's own tree, so that the one style sheet serves it too.
    return component("speclens.runs", html='<div class="sl-table"></div>', js=_SCRIPT, isolate_styles=False)


def runs_table(runs: Sequence[StoredRun], sort: str, descending: bool) -> tuple[str | None, str | None]:
    """Draws the table; gives the column that was clicked and the run that was chosen, each None when none was."""
    result = _component()(
        key="runs_table",
        data={
            "columns": [
                {"label": c.label, "sort": c.sort, "tip": c.tip, "number": c.number, "extra": c.extra} for c in COLUMNS
            ],
            "rows": [{"id": run.run_id, "status": run.status, "cells": [c.text(run) for c in COLUMNS]} for run in runs],
            "sort": sort,
            "descending": descending,
        },
        on_sort_change=lambda: None,
        on_open_change=lambda: None,
    )
    return result.sort, result.open
