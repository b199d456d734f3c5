"""A round's draft as a drawing: the root on the left, candidates in columns by depth, the round's last token last.

The layout, in columns and rows, is computed here; a small component paints it and reports which candidate was chosen.
The component's script writes text only with ``textContent``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from core.records import ROOT, Round
from pages.ui.kit import palette
from pages.ui.kit.glyphs import plain_glyphs
from pages.ui.rounds import tokens

END = -2
"""The drawing's number for the correction or bonus at the end of the committed path."""

_SCRIPT = Path(__file__).with_name("tree_drawing.js").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mark:
    """One item of the drawing. ``id``: a candidate's number, :data:`ROOT` or :data:`END`; ``state``: a name of the
    palette or ``root``; ``committed``: whether it lies on the committed path."""

    id: int
    parent: int | None
    column: int
    row: int
    state: str
    text: str
    tip: str
    committed: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Layout of a whole round, in columns and rows from 0; parents come before their children."""

    marks: tuple[Mark, ...]
    columns: int
    rows: int


def drawing(round_: Round) -> Drawing:
    """Layout of the round: the committed path with its correction or bonus on the first row, all other candidates
    below, tested siblings before untested ones, each in the order of the draft."""
    end = tokens.path_end(round_)
    ended = round_.source != "none" and bool(round_.committed)
    children: dict[int, list[int]] = {}
    for index, node in enumerate(round_.nodes):
        children.setdefault(node.parent, []).append(index)
    if ended:
        children.setdefault(end, []).append(END)
    path = {index for index, node in enumerate(round_.nodes) if node.fate == "accepted"}
    for siblings in children.values():  # a stable sort: the order of the draft stays within each rank
        siblings.sort(key=lambda child: _rank(round_, child))
    span = {END: 1}
    for index in (*reversed(range(len(round_.nodes))), ROOT):  # parents come before their children
        span[index] = max(1, sum(span[child] for child in children.get(index, ())))
    row = {ROOT: 0}
    for index in (ROOT, *range(len(round_.nodes))):
        at = row[index]
        for child in children.get(index, ()):
            row[child] = at
            at += span[child]
    marks = [Mark(ROOT, None, 0, 0, "root", "root", "The committed prefix: candidates continue it.", True)]
    marks += [
        Mark(
            index, node.parent, node.depth, row[index], node.fate, plain_glyphs(node.text) or "∅",
            tokens.tip(node), index in path,
        )
        for index, node in enumerate(round_.nodes)
    ]  # fmt: skip
    if ended:
        depth = 0 if end == ROOT else round_.nodes[end].depth
        text, state, description = tokens.last(round_)
        marks.append(Mark(END, end, depth + 1, row[END], state, plain_glyphs(text) or "∅", description, True))
    return Drawing(tuple(marks), 1 + max(mark.column for mark in marks), span[ROOT])


def _rank(round_: Round, child: int) -> int:
    """Rank of a sibling: committed, then tested, then untested."""
    if child == END or round_.nodes[child].fate == "accepted":
        return 0
    return 2 if round_.nodes[child].u is None else 1


def summary(round_: Round) -> str:
    """The drawing in words, for those who can't see it."""
    if not round_.nodes:
        return f"Round {round_.index + 1}: no draft."
    counts = ", ".join(
        f"{round_.count(fate)} {palette.STATES[fate].label}"
        for fate in ("accepted", "rejected", "unreached", "cut")
        if round_.count(fate)
    )
    end = "" if round_.source == "none" else f", then a {round_.source}"
    return f"Round {round_.index + 1}: {round_.drafted} candidates, {counts}{end}. Arrow keys move, Enter chooses."


def draw(round_: Round, chosen: int, run_id: str, key: str, on_pick: Callable[[], None]) -> None:
    """Draw the round. ``chosen``: the mark shown as chosen. ``on_pick`` is called when a person chooses another mark
    or a round's number in this run's list; the component's state under ``key`` holds the choice."""
    placed = drawing(round_)
    _component()(
        key=key,
        data={
            "marks": [asdict(mark) for mark in placed.marks],
            "columns": placed.columns,
            "rows": placed.rows,
            "chosen": chosen,
            "label": summary(round_),
            "run": run_id,
        },
        on_pick_change=on_pick,
        on_round_change=on_pick,
    )


def _component() -> Any:
    # Mounted in the page's own tree, so that the one style sheet serves it too.
    return component("speclens.tree", html='<div class="sl-drawing"></div>', js=_SCRIPT, isolate_styles=False)
