"""One metric, prompt by prompt: which prompts a configuration improves, and which it makes worse."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from core.results.comparison import Compared, PromptRow, by_prompt, configuration
from core.results.glossary import GLOSSARY
from pages.ui.compare import metrics
from pages.ui.kit import parts
from pages.ui.kit.sides import Side, excerpt

METRIC, THRESHOLD = "compare_prompt_metric", "compare_prompt_threshold"


def draw(sides: Sequence[Side], base: int) -> None:
    """Draw the table with its metric and its threshold; nothing if no two runs share a prompt."""
    runs = [side.compared for side in sides]
    known = [run for run in runs if run is not None]
    if len(known) < len(runs) or not by_prompt(known, base, metrics.PER_PROMPT[0]):
        return
    with parts.headline("compare_prompts_head"):
        st.html('<h3 class="sl-h">Prompt by prompt</h3>')
        with st.container(horizontal=True, horizontal_alignment="right", key="compare_prompts_controls"):
            name = st.selectbox(
                "Metric",
                metrics.PER_PROMPT,
                format_func=lambda each: GLOSSARY[each].label,
                key=METRIC,
                persist_state="session",
                width=220,
            )
            least = st.number_input(
                "Change of at least, %", 0, 1000, 0, 5, key=THRESHOLD, persist_state="session", width=170
            )
    rows = by_prompt(known, base, name or metrics.PER_PROMPT[0])
    shown = [row for row in rows if not least or (row.widest is not None and row.widest * 100 >= least)]
    if len(rows) > 1:
        st.caption(f"{len(shown)} of {len(rows)} prompts that two runs or more share.")
    if not shown:
        st.html(parts.empty("No prompt changes that much", "Lower the threshold to see more of them."))
        return
    st.html(_table(sides, known, shown, name or metrics.PER_PROMPT[0]))


def _table(sides: Sequence[Side], runs: Sequence[Compared], rows: Sequence[PromptRow], name: str) -> str:
    """Table with one row per prompt and one column per configuration (settings without prompt and seed)."""
    columns = list(dict.fromkeys(configuration(runs[n].request) for row in rows for n in row.members))
    heads = []
    for column in columns:
        of = [side for side, run in zip(sides, runs, strict=True) if configuration(run.request) == column]
        heads.append(f'<th scope="col">{" ".join(side.badge() for side in of)} {escape(of[0].label)}</th>')
    body = "".join(
        f'<tr data-prompt="{escape(row.prompt_hash, quote=True)}"><th scope="row">'
        f"{escape(excerpt(row.prompt, 90))}</th>"
        + "".join(f"<td>{_cells(sides, runs, row, column, name)}</td>" for column in columns)
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="sl-cmp sl-prompts" tabindex="0" role="region" aria-label="Prompt by prompt"><table><thead><tr>'
        f'<th scope="col">Prompt</th>{"".join(heads)}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cells(sides: Sequence[Side], runs: Sequence[Compared], row: PromptRow, column: object, name: str) -> str:
    found = []
    for number, change in zip(row.members, row.changes, strict=True):
        if configuration(runs[number].request) != column:
            continue
        cell = metrics.cell(name, change, number == row.base)
        note = cell.note or ("baseline" if number == row.base else "")
        small = f"<small>{escape(note)}</small>" if note else ""
        kind = f" sl-{cell.kind}" if cell.kind else ""
        text = f'<span class="sl-value">{escape(cell.text)}</span>{small}'
        found.append(f'<div class="sl-of{kind}">{sides[number].badge()} {text}</div>')
    return "".join(found) or "–"
