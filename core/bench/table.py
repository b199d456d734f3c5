"""Rows in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.bench.rows import Row

COLUMNS = ("", "tokens/s", "min–max", "× assisted", "× same linears", "ours ×", "tokens/round", "outside", "peak")


def show(rows: Sequence[Row], machine: Mapping[str, str]) -> None:
    """The table on standard output, then near-ties and the machine, a line each."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style="dim" if row.peer else "")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else max(Console().width, 160))
    console.print(table)
    for row in rows:
        for tie in row.near_ties:
            console.print(
                Text(
                    f"{row.name}: near-tie at new token {tie.position} of prompt {tie.prompt}, tokens "
                    f"{tie.tokens[0]} and {tie.tokens[1]} within {tie.margin:.2g}; equal up to there."
                )
            )
    console.print(Text(", ".join(f"{name} {value}" for name, value in machine.items())), soft_wrap=True)
    if rows:
        note = (
            f"Medians over interleaved runs ({rows[0].runs}), prefill included; ratios are medians of the runs' ratios."
        )
        console.print(Text(note), soft_wrap=True)


def _cells(row: Row) -> list[str]:
    spread = f"{row.spread[0]:.1f}–{row.spread[1]:.1f}" if row.spread else "–"
    peak = f"{row.peak_bytes / 2**20:,.0f} MiB" if row.peak_bytes else "–"
    return [
        row.name + (" ✗" if row.error else ""),
        _number(row.tokens_per_second, ".1f"),
        spread,
        _number(row.ratio_to_assisted, ".2f"),
        _number(row.ratio_same_linears, ".2f"),
        _number(row.ratio_of_ours, ".2f"),
        _number(row.tokens_per_round, ".2f"),
        _number(row.outside_forward_share, ".1%"),
        peak,
    ]


def _number(value: float | None, how: str) -> str:
    return "–" if value is None else format(value, how)
