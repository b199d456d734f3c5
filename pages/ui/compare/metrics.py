"""Metrics run by run, each with its signed change against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.records import Summary
from core.results.comparison import NEGLIGIBLE, Change, changed, changes
from core.results.glossary import GLOSSARY
from pages.ui.kit import numbers, table
from pages.ui.kit.runs import speed_up
from pages.ui.kit.services import Services
from pages.ui.kit.sides import Side
from pages.ui.kit.table import Cell, Row

GROUPS: dict[str, tuple[str, ...]] = {
    "Speed": ("speed_up", "tokens_per_second", "ttft_s", "tpot_s", "e2e_s"),
    "Drafting": (
        "tokens_per_round", "accepted_length", "path_acceptance", "target_calls_per_token",
        "rounds", "rounds_without_draft", "drafted", "accepted", "rejected", "unreached", "cut",
    ),
    "Distortion": (
        "distortion_kl", "distortion_tv", "escaped_mass", "overshoot",
        "distortion_positions", "distortion_kl_undefined", "distortion_conditional",
    ),
    "Token gaps": (
        "gap_p50_s", "gap_p95_s", "gap_max_s", "burst_gap_p50_s", "burst_gap_p95_s", "burst_gap_max_s",
    ),
    "Time, whole run": ("prefill_s", "decode_s", "draft_s", "verify_s", "state_s", "other_s", "distortion_s"),
    "Size": ("prompt_tokens", "output_tokens", "peak_memory_bytes"),
}  # fmt: skip

PER_PROMPT = (
    "tokens_per_second", "tokens_per_round", "path_acceptance", "distortion_kl", "distortion_tv",
    "ttft_s", "tpot_s", "e2e_s", "gap_p95_s",
)  # fmt: skip
"""Metrics that the per-prompt table offers, also used for the parallel axes."""

MINUS = "−"


def draw(services: Services, sides: Sequence[Side], base: int) -> None:
    """Draw the table, and the reason for any missing speed-up."""
    st.html('<h3 class="sl-h">Metrics <small>change against the baseline</small></h3>')
    ratios = speed_ups(services, sides)
    st.html(table.html(sides, rows(sides, base, ratios), base, "Metrics"))
    lacking = [side for side, ratio in zip(sides, ratios, strict=True) if ratio is None and not side.run.plain]
    bits = [
        "▲ and ▼ show the direction; “better” and “worse” appear only where a metric has one. Times and speeds of "
        "single runs are never judged: two runs of the same settings differ by some per cent."
    ]
    if lacking:
        bits.append("A speed-up is measured against a matched plain run of the same session; where there is none: –.")
    st.caption(" ".join(bits))


def speed_ups(services: Services, sides: Sequence[Side]) -> list[float | None]:
    """Each run's measured speed-up against a matched plain run of its session, among the compared runs or else the
    latest stored; None without such a run, and for plain runs."""
    runs = [side.run for side in sides]
    return [speed_up(services, run, beside=runs) for run in runs]


def rows(sides: Sequence[Side], base: int, ratios: Sequence[float | None]) -> list[Row]:
    """One row per metric, without metrics for which no run has a value."""
    summaries = [side.run.summary for side in sides if side.run.summary is not None]
    found: list[Row] = []
    for group, names in GROUPS.items():
        began = False
        for name in names:
            line = changed(name, ratios, base) if name == "speed_up" else changes(name, summaries, base)
            if all(change.value is None for change in line):
                continue
            found.append(_row(name, line, base, summaries, "" if began else group))
            began = True
    return found


def _row(name: str, line: Sequence[Change], base: int, summaries: Sequence[Summary], group: str) -> Row:
    metric = GLOSSARY[name]
    cells = tuple(cell(name, change, place == base) for place, change in enumerate(line))
    tip = f"{metric.definition}{_direction(metric.better)}"
    if name == "peak_memory_bytes" and any(summary.peak_memory_kind != "cuda_allocated" for summary in summaries):
        tip += "\nHere it counts every run since the engine's process started, so it is not compared."
    return Row(metric.label, cells, tip, numbers.unit_beside(metric), group, name)


def _direction(better: str | None) -> str:
    return f"\n{better.capitalize()} is better." if better else ""


def cell(name: str, change: Change, base: bool = False) -> Cell:
    """Cell of a value and its change, better or worse in words as well as in colour."""
    text = numbers.metric(name, change.value)
    if base or change.change is None:
        return Cell(text)
    if change.change == 0:
        return Cell(text, "= no change")
    if change.share is not None and abs(change.share) < NEGLIGIBLE:
        return Cell(text, "≈ no change")
    arrow = "▲" if change.change > 0 else "▼"
    judged = "" if change.better is None else " better" if change.better else " worse"
    kind = "" if change.better is None else "better" if change.better else "worse"
    return Cell(text, f"{arrow} {signed(name, change)}{judged}", kind)


def signed(name: str, change: Change) -> str:
    """The change with its sign: shares in percentage points, counts as they are, all else relative."""
    assert change.change is not None
    sign = "+" if change.change > 0 else MINUS
    if GLOSSARY[name].unit == "share":
        return f"{sign}{abs(change.change):.1%}".replace("%", " points")
    if isinstance(change.change, int):
        return f"{sign}{abs(change.change):,}"
    if change.share is None:
        return f"{sign}{numbers.metric(name, abs(change.change))}"
    return f"{sign}{abs(change.share):.1%}".replace("%", " %")
