"""Rule lab, the paper's figures and ablation tables, recomputed: one at a time, with its notes."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from core.grammar import rule_text
from core.lab.figure_notes import NOTES, Notes
from core.lab.vocabularies import LabPair
from core.rules.catalogue import BY_NAME, ENTROPIES, FACTORS, THRESHOLDS
from pages.ui.kit import charts, numbers, parts
from pages.ui.lab import charts as lab_charts
from pages.ui.lab import compute, paper_charts, rule_fields
from pages.ui.lab.tables import Cell, Head, Line, distance, notes, probability, table, token

FIGURES = {
    "figure2": "Figure 2",
    "figure4": "Figure 4",
    "figure8a": "Figure 8a",
    "figure8b": "Figure 8b",
    "proposition1": "Proposition 1",
    "lemma1": "Lemma 1",
    "corollary1": "Corollary 1",
    "table1": "Table 1",
    "table6": "Table 6",
}


FIGURE2 = {"draft_weight": 0.5, "ell": 0.8, "p_base": 0.5, "redraw": "draft_in_set"}
"""What Figure 2 starts with. Its panel (c) is the law of Eq. 12–13, which redraws from q inside the set."""


DEPTH = 5
"""Levels of the tree of Proposition 2: the paper's depth."""


def draw(pair: LabPair) -> None:
    """The chosen figure."""
    chosen = st.segmented_control(
        "Figure", list(FIGURES), format_func=FIGURES.__getitem__, default="figure2", required=True, key="lab_figure",
        label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    name = chosen or "figure2"
    found = NOTES[name]
    st.html(f'<h3 class="sl-h">{found.title}</h3><p class="sl-reason">{found.shows}</p>')
    _DRAW[name](pair, found)
    st.html(notes(found))


def _figure2(pair: LabPair, _: Notes) -> None:
    values = rule_fields.figure_fields("f2", FIGURE2, ("cos_we", "lenience", "spec_cascade"))
    rules = tuple(
        (title, rule_text(BY_NAME[name], values))
        for title, name in (("(a) CoS", "cos_we"), ("(b) Lenience", "lenience"), ("(c) SpecCascade", "spec_cascade"))
    )
    found = compute.figure2(pair, rules)
    with st.container(key="lab_figure2"):
        columns = st.columns(3, gap="small")
    for number, (column, panel) in enumerate(zip(columns, found.panels, strict=True)):
        with column:
            st.html(f'<h4 class="sl-h">{panel.title} <small>accepts {numbers.rate(panel.mass)}</small></h4>')
            st.plotly_chart(
                lab_charts.law(found, panel, pair, height=300, legend=False), config=charts.CONFIG,
                key=f"lab_f2_{number}",
                alt=f"Figure 2: p, q, overlap and what {panel.title} emits.",
            )  # fmt: skip
    st.html(lab_charts.law_key())


def _figure4(pair: LabPair, _: Notes) -> None:
    with st.container(horizontal=True, key="lab_f4_fields"):
        sharpness = st.number_input(
            "Draft's sharpness", 0.25, 4.0, 2.0, 0.25, key="lab_sharpness", width=170,
            help="Factor on the draft's logits; 1: as sharp as the target.", persist_state="session",
        )  # fmt: skip
        pairs = int(
            st.number_input("Pairs a ratio", 10, 400, 60, 10, key="lab_pairs", width=150, persist_state="session")
        )
        seed = int(st.number_input("Seed", 0, 10**6, 0, key="lab_f4_seed", width=120, persist_state="session"))
    with st.container(key="lab_figure4"):
        columns = st.columns(2, gap="medium")
    for column, (kind, grid, title, axis) in zip(
        columns, (("min_p", THRESHOLDS, "Min-p", "p_base"), ("eta", ENTROPIES, "η-sampling", "ε")), strict=True
    ):
        with column:
            st.html(f'<h4 class="sl-h">{title} <small>mean ± one standard deviation of {pairs} pairs</small></h4>')
            found = compute.figure4(kind, grid, pairs, seed, float(sharpness))
            st.plotly_chart(
                paper_charts.alignment(found, axis), config=charts.CONFIG, key=f"lab_f4_{kind}",
                alt=f"Figure 4: net ΔBE under {title} over {axis}, a line a ratio.",
            )  # fmt: skip


def _figure8a(pair: LabPair, _: Notes) -> None:
    found = compute.figure8a(pair, FACTORS)
    st.plotly_chart(
        paper_charts.delta(found), config=charts.CONFIG, key="lab_f8a", alt="Δ against TV(p, q), a line an ℓ."
    )


def _figure8b(pair: LabPair, _: Notes) -> None:
    with st.container(horizontal=True, key="lab_f8b_fields"):
        p = st.number_input("p(x)", 0.01, 1.0, 0.2, 0.05, key="lab_f8b_p", width=130, persist_state="session")
        ell = st.number_input("ℓ", 0.05, 1.0, 0.5, 0.05, key="lab_f8b_ell", width=130, persist_state="session")
    found = compute.figure8b(float(p), float(ell))
    st.plotly_chart(
        paper_charts.ceiling(found), config=charts.CONFIG, key="lab_f8b",
        alt="What a token is emitted with against the draft's probability of it: mixture, ceiling, ablation.",
    )  # fmt: skip


def _proposition1(pair: LabPair, _: Notes) -> None:
    values = rule_fields.figure_fields("p1", {"p_base": 0.5}, ("spec_cascade",))
    found = compute.divergences(pair, rule_text(BY_NAME["spec_cascade"], values), 10)
    if found.allowed < 2:
        st.html(parts.note("info", "The allowed set holds one token: both divergences are 0. Lower p_base."))
    st.plotly_chart(
        paper_charts.divergences(found), config=charts.CONFIG, key="lab_p1",
        alt="KL of standard SD and of EAGLE against TV(p, q) as the draft nears the target.",
    )  # fmt: skip


def _lemma1(pair: LabPair, _: Notes) -> None:
    heads = (
        Head("p_base", number=False), Head("p(A)", "z, the mass of the allowed set."),
        Head("Gain", "Σ over A of min{(q−p)₊, (1/z−1) p}."), Head("Loss", "L_trunc, Σ of min(p, q) outside A."),
        Head("ΔBE", "Gain − loss."), Head("Directly", "Σ min(p_Θ, q) − Σ min(p, q): the same."),
        Head("As printed", "With L_trunc inside the sum."),
    )  # fmt: skip
    lines = [
        Line(
            Cell(f"{row.p_base:g}"),
            (
                probability(row.effect.z), Cell(f"{row.effect.gain:.4f}"), Cell(f"{row.effect.loss:.4f}"),
                Cell(f"{row.effect.change:+.4f}"), Cell(f"{row.effect.direct:+.4f}"), Cell(f"{row.printed:+.4f}"),
            ),
            f"lemma1_{row.p_base:g}",
        )
        for row in compute.lemma1(pair, THRESHOLDS)
    ]  # fmt: skip
    st.html(table(heads, lines, "Lemma 1"))


def _corollary1(pair: LabPair, _: Notes) -> None:
    values = rule_fields.figure_fields("c1", {"p_base": 0.5}, ("spec_cascade",))
    heads = (
        Head("|C|", number=False), Head("Candidates C", "The draft's most likely tokens.", number=False),
        Head("Lossless", "p_Θ(C)"), Head("SpecCascade", "1[C ∩ A ≠ ∅]"),
        Head("BE lossless", "Accepted tokens a round, 5 levels."), Head("BE SpecCascade", "As BE lossless."),
    )  # fmt: skip
    lines = [
        Line(
            Cell(f"{row.size}"),
            (
                Cell(" ".join(token(pair.tokens[one]) for one in row.candidates), kind="left"),
                probability(row.lossless), probability(row.spec_cascade),
                Cell(f"{row.lossless_efficiency:.4f}"), Cell(f"{row.cascade_efficiency:.4f}"),
            ),
            f"set_{row.size}",
        )
        for row in compute.candidate_sets(pair, rule_text(BY_NAME["spec_cascade"], values), DEPTH)
    ]  # fmt: skip
    st.html(table(heads, lines, "Sets of candidates"))


def _table(number: int) -> Callable[[LabPair, Notes], None]:
    def drawn(pair: LabPair, _: Notes) -> None:
        rows = compute.ablation(number, pair, FACTORS)
        heads = (
            Head("Row", number=False),
            Head("Accepted", "Acceptance mass, mean over the grid."),
            Head("TV to p", "Mean over the grid."),
            Head("Overshoot kept", "What is emitted above p on tokens with q > p, mean over the grid."),
            *((Head("Printed sum", "What the formula sums to as printed, at .2 .4 .6 .8."),) if number == 1 else ()),
            *(Head(f"TV at {value:g}", "At this λ or ℓ.") for value in FACTORS),
        )
        lines = []
        for row in rows:
            each = [one.tv for one in row.each] if len(row.each) > 1 else [row.tv] * len(FACTORS)
            raw = numbers.NOTHING if row.raw_sum is None else " ".join(f"{value:.3f}" for value in row.raw_sum)
            cells = (
                probability(row.mass),
                distance(row.tv),
                distance(row.overshoot_kept),
                *((Cell(raw),) if number == 1 else ()),
            )
            lines.append(Line(Cell(row.label), (*cells, *(distance(value) for value in each)), row.label))
        st.html(table(heads, lines, f"Table {number}"))
        if number == 6:
            most = max(compute.lenience_difference(pair, ell) for ell in FACTORS)
            text = f"Largest difference to lenience's law over ℓ ∈ {{.2, .4, .6, .8}}: {most:.1e}."
            st.html(parts.note("info", text, "The ceiling coded as a rule of its own is lenience."))

    return drawn


_DRAW: dict[str, Callable[[LabPair, Notes], None]] = {
    "figure2": _figure2,
    "figure4": _figure4,
    "figure8a": _figure8a,
    "figure8b": _figure8b,
    "proposition1": _proposition1,
    "lemma1": _lemma1,
    "corollary1": _corollary1,
    "table1": _table(1),
    "table6": _table(6),
}
