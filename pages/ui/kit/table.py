"""A table with one column per run. Every text of a cell is escaped here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from pages.ui.kit.sides import Side

Kind = Literal["", "better", "worse", "differs", "base"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell: ``text`` with ``note`` in small print below. ``kind`` gives the colour; the note also says better or worse
    in words."""

    text: str
    note: str = ""
    kind: Kind = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Row: label, definition as ``tip``, one cell per run. ``group``: name of the group that begins with this row."""

    label: str
    cells: tuple[Cell, ...]
    tip: str = ""
    unit: str = ""
    group: str = ""
    name: str = ""


def html(sides: Sequence[Side], rows: Sequence[Row], base: int | None, label: str) -> str:
    """The table as HTML. ``base``: the baseline's column, marked as such; ``label``: its name for screen readers."""
    heads = "".join(_head(side, place == base) for place, side in enumerate(sides))
    body = "".join(_row(row, len(sides)) for row in rows)
    return (
        f'<div class="sl-cmp" tabindex="0" role="region" aria-label="{escape(label, quote=True)}"><table>'
        f'<thead><tr><th scope="col"></th>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _head(side: Side, base: bool) -> str:
    also = " <small>baseline</small>" if base else ""
    return f'<th scope="col">{side.badge()} {escape(side.label)}{also}</th>'


def _row(row: Row, width: int) -> str:
    group = f'<tr class="sl-group"><th colspan="{width + 1}" scope="colgroup">{escape(row.group)}</th></tr>'
    tip = f' title="{escape(row.tip, quote=True)}" class="sl-help"' if row.tip else ""
    unit = f" <small>{escape(row.unit)}</small>" if row.unit else ""
    cells = "".join(_cell(cell) for cell in row.cells)
    name = f' data-row="{escape(row.name, quote=True)}"' if row.name else ""
    head = f'<th scope="row"><span{tip}>{escape(row.label)}</span>{unit}</th>'
    return f"{group if row.group else ''}<tr{name}>{head}{cells}</tr>"


def _cell(cell: Cell) -> str:
    kind = f' class="sl-{cell.kind}"' if cell.kind else ""
    note = f"<small>{escape(cell.note)}</small>" if cell.note else ""
    return f'<td{kind}><span class="sl-value">{escape(cell.text)}</span>{note}</td>'
