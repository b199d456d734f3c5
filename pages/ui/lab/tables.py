"""Tables of the rule lab. Token texts may come from a model: everything is escaped here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from core.lab.figure_notes import Notes
from pages.ui.kit import numbers
from pages.ui.kit.glyphs import plain_glyphs

LONGEST = 14
"""Characters of a token that are shown; the whole is its tooltip."""

_INERT = str.maketrans({"<": "‹", ">": "›", "&": "＆"})


@dataclass(frozen=True, slots=True)
class Cell:
    """``text`` with ``note`` in small under it. ``share`` in [0, 1] draws a bar behind; ``kind`` is a class."""

    text: str
    note: str = ""
    share: float | None = None
    kind: str = ""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """A column; ``tip`` is its definition."""

    label: str
    tip: str = ""
    number: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """A row: ``name`` marks it for tests and links, ``group`` begins a group."""

    head: Cell
    cells: tuple[Cell, ...]
    name: str = ""
    group: str = ""
    chosen: bool = False


def table(heads: Sequence[Head], lines: Sequence[Line], label: str) -> str:
    """The table; the first column stays while the others scroll. ``label`` names it for a screen reader."""
    top = "".join(
        f'<th scope="col"{_tip(head.tip)}{"" if head.number else " class=sl-left"}>{escape(head.label)}</th>'
        for head in heads
    )
    body = "".join(_line(line, len(heads)) for line in lines)
    return (
        f'<div class="sl-cmp sl-lab" tabindex="0" role="region" aria-label="{escape(label, quote=True)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def token(text: str) -> str:
    """A token as plain text on one line, shortened."""
    shown = plain_glyphs(text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def figure_token(text: str) -> str:
    """A token for a figure, whose texts know markup: without any character that could begin some."""
    return token(text).translate(_INERT)


def probability(value: float) -> Cell:
    """A probability with its bar."""
    return Cell(numbers.probability(value), share=value)


def nats(value: float | None, escaped: float) -> Cell:
    """A divergence, or how much of the law lies where the other has nothing."""
    if value is None:
        return Cell(
            numbers.NOTHING, f"{numbers.rate(escaped)} escapes", tip="The law leaves the support: KL is not finite."
        )
    return Cell(f"{value:.4f}")


def distance(value: float) -> Cell:
    """A total variation."""
    return Cell(f"{value:.4f}")


def notes(found: Notes) -> str:
    """Equation, assumptions and differences of a figure."""
    parts = [f'<p class="sl-equation">{escape(found.equation)}</p>']
    for title, sentences in (("Assumed here", found.assumes), ("Where print or code differ", found.differs)):
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h4>{title}</h4><ul>{items}</ul>" if items else "")
    return f'<div class="sl-notes">{"".join(parts)}</div>'


def _line(line: Line, width: int) -> str:
    group = f'<tr class="sl-group"><th colspan="{width}" scope="colgroup">{escape(line.group)}</th></tr>'
    name = f' data-row="{escape(line.name, quote=True)}"' if line.name else ""
    chosen = ' class="sl-chosen"' if line.chosen else ""
    head = f'<th scope="row"{_tip(line.head.tip)}>{_inside(line.head)}</th>'
    return f"{group if line.group else ''}<tr{name}{chosen}>{head}{''.join(map(_cell, line.cells))}</tr>"


def _cell(cell: Cell) -> str:
    kind = f' class="sl-{cell.kind}"' if cell.kind else ""
    share = max(0.0, min(1.0, cell.share or 0.0))
    bar = f' style="--share:{share:.4f}" data-share' if cell.share is not None else ""
    return f"<td{kind}{bar}{_tip(cell.tip)}>{_inside(cell)}</td>"


def _inside(cell: Cell) -> str:
    note = f"<small>{escape(cell.note)}</small>" if cell.note else ""
    return f"{escape(cell.text)}{note}"


def _tip(text: str) -> str:
    return f' title="{escape(text, quote=True)}"' if text else ""
