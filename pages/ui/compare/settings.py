"""Every setting and every field of the fingerprint, run by run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.records import Fingerprint
from pages.ui.compare.verdict import FIELDS, HASHED, field_name, field_value
from pages.ui.kit import numbers, parts, table
from pages.ui.kit.sides import Side
from pages.ui.kit.table import Cell, Row

ONLY = "compare_only"

ASKED = frozenset({"sampling", "stops", "seed", "rule"})
"""Fields of the fingerprint that are among the requested settings."""

MEANING = {
    "reference_law": "The law that the run's rule is judged by: its sampling and the rule's allowed set.",
    "drafting": "Drafter, shape, and whether candidates are sampled or deterministic.",
    "target_hash": "Hash of the target's weights.",
    "prompt_ids_hash": "Hash of the prompt's tokens as the model read them, template included.",
    "end_tokens": "Ids of the tokens that end a run.",
    "batch": "Requests decoded together; they share each pass, and so its time.",
    "cache_policy": "How the cache is kept; an approximate one makes another target.",
}


def draw(sides: Sequence[Side], base: int) -> None:
    """Draw the table with its switch."""
    with parts.headline("compare_settings_head"):
        st.html('<h3 class="sl-h">Settings</h3>')
        only = st.toggle("Differences only", value=True, key=ONLY, persist_state="session")
    found = rows(sides, base, only)
    if not found:
        st.html(parts.empty("No setting differs", "Turn off “Differences only” to see all of them."))
        return
    st.html(table.html(sides, found, base, "Settings"))


def rows(sides: Sequence[Side], base: int, only: bool) -> list[Row]:
    """Requested settings, then the run's environment; ``only``: just the rows in which the runs differ."""
    asked = [dict(parts.settings(side.run.spec)) for side in sides]
    had = [_fields(side.run.fingerprint) for side in sides]
    found: list[Row] = []
    for group, tables in (("Asked for", asked), ("Ran on", had)):
        names = list(dict.fromkeys(name for table in tables for name in table))
        kept = []
        for name in names:
            values = [table.get(name, numbers.NOTHING) for table in tables]
            if only and len(set(values)) == 1:
                continue
            kept.append(Row(*_line(name, values, base), tip=_tip(name), name=name))
        found += [
            Row(row.label, row.cells, row.tip, "", group if not place else "", row.name)
            for place, row in enumerate(kept)
        ]
    return found


def _line(name: str, values: Sequence[str], base: int) -> tuple[str, tuple[Cell, ...]]:
    cells = tuple(Cell(value, kind="differs" if value != values[base] else "") for value in values)
    return name, cells


def _fields(fingerprint: Fingerprint | None) -> dict[str, str]:
    if fingerprint is None:
        return {}
    found = {
        _title(name): field_value(name, str(getattr(fingerprint, name)))
        for name in FIELDS
        if name not in ASKED | {"versions"}
    }
    return found | {_title(f"versions.{name}"): version for name, version in sorted(fingerprint.versions.items())}


def _title(field: str) -> str:
    name = field_name(field)
    return name[0].upper() + name[1:] + (" hash" if field in HASHED else "")


_TIPS = {_title(field): text for field, text in MEANING.items()}


def _tip(name: str) -> str:
    return _TIPS.get(name, "")
