"""Rule lab, the article's two code examples: a round replayed, and the cost budget. Its numbers are the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.errors import BadInput, SpecLensError
from core.lab.budget import Budget, along_cost, verdict
from core.lab.vocabularies import LabPair, lab_pair, names
from pages.ui.kit import charts, lab_link, numbers, palette, parts
from pages.ui.lab import compute, paper_charts
from pages.ui.lab.tables import Cell, Head, Line, probability, table

if TYPE_CHECKING:
    from core.lab.article import Replay

DRAFTERS = (("First", 0.8, 1.0), ("Second", 0.9, 3.0))
CHEAP = (
    "Acceptance measures how well a draft matches; cycle time over committed tokens ties that to speed. Along each "
    "line below the match is the same and only the cost changes: a drafter that is right more often still loses once "
    "its tokens cost too much. Below the dashed line plain decoding is faster."
)


def draw(_: LabPair) -> None:
    """Both examples."""
    st.html('<h3 class="sl-h">Account for all probability mass <small>a round with fixed draws</small></h3>')
    with st.container(horizontal=True, key="lab_replay_fields"):
        p = st.text_input("p of A, B, C …", "0.5, 0.3, 0.2", key="lab_a_p", width=170, max_chars=200)
        q = st.text_input("q", "0.6, 0.1, 0.3", key="lab_a_q", width=170, max_chars=200)
        draft = st.text_input("Draft", "A, C, B", key="lab_a_draft", width=130, max_chars=200)
        draws = st.text_input("Draws", "0.7, 0.9, 0.2", key="lab_a_draws", width=150, max_chars=200)
        final = st.text_input("Final draw", "0.2", key="lab_a_final", width=110, max_chars=30)
    try:
        pair, found = _replayed(p, q, draft, draws, final)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
    else:
        _replay(pair, found)
    st.html(
        '<h3 class="sl-h">A good draft must also be cheap <small>hypothetical times, as in the article</small></h3>'
    )
    try:
        _budget()
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))


def _replayed(p: str, q: str, draft: str, draws: str, final: str) -> tuple[LabPair, Replay]:
    columns = lab_link.numbers_of(p, "p"), lab_link.numbers_of(q, "q")
    pair = lab_pair(names(len(columns[0])), *columns)
    last = lab_link.numbers_of(final, "the final draw")
    if len(last) != 1:
        raise BadInput("The final draw is one number from 0 up to, not including, 1.")
    tokens = tuple(part for part in draft.replace(",", " ").split() if part)
    return pair, compute.replay(pair, tokens, lab_link.numbers_of(draws, "the draws"), last[0])


def _replay(pair: LabPair, found: Replay) -> None:
    with st.container(key="lab_replay"):
        left, right = st.columns(2, gap="medium")
    with left:
        heads = (
            Head("Candidate", number=False), Head("u"), Head("Threshold", "min(1, p/q)"),
            Head("u < threshold", number=False), Head("Fate", number=False),
        )  # fmt: skip
        lines = []
        for place, step in enumerate(found.steps):
            look = palette.STATES[step.fate]
            u = numbers.NOTHING if step.u is None else f"{step.u:g}"
            threshold = numbers.NOTHING if step.threshold is None else f"{step.threshold:.3f}"
            passed = numbers.NOTHING if step.u is None else "yes" if step.fate == "accepted" else "no"
            cells = (
                Cell(u),
                Cell(threshold),
                Cell(passed, kind="left"),
                Cell(f"{look.mark} {look.label}", kind="left"),
            )
            lines.append(Line(Cell(step.token), cells, f"{place + 1}"))
        st.html(table(heads, lines, "The round, candidate by candidate"))
        rows = [("Emitted", ", ".join(found.emitted)), ("Last token", found.source)]
        if found.discarded:
            rows.insert(1, ("Discarded", ", ".join(found.discarded)))
        st.html(parts.pairs_list(rows))
    with right:
        law = found.law
        heads = (
            Head("Token", number=False),
            Head("Accepted mass", "q·a = min(p, q)"),
            Head("Residual"),
            Head("Restored"),
        )
        rejects = law.mass < 1.0 - 1e-9  # at p = q nothing is rejected, and the article skips the residual
        lines = [
            Line(
                Cell(name),
                (
                    probability(law.accepted[place]),
                    probability(law.residual[place]) if rejects else Cell("–"),
                    probability(law.induced[place]),
                ),
                name,
            )
            for place, name in enumerate(pair.tokens)
        ]
        st.html(table(heads, lines, "All probability mass"))
        st.html(
            parts.pairs_list(
                [
                    ("Acceptance", f"{law.mass:g}" if rejects else "1: nothing is rejected, so there is no residual"),
                    ("Restored", "p, up to rounding" if law.tv < 1e-12 else f"{law.tv:.1e} away from p"),
                ]
            )
        )


def _budget() -> None:
    with st.container(horizontal=True, key="lab_budget_shared"):
        gamma = int(st.number_input("γ", 1, 64, 4, key="lab_b_gamma", width=110, help="Candidates a round."))
        baseline = _ms("Plain decoding", 10.0, "baseline", "Milliseconds a token.")
        verify = _ms("Verification", 12.0, "verify", "Milliseconds a round.")
        state = _ms("State handling", 2.0, "state", "Milliseconds a round.")
    budgets = []
    with st.container(horizontal=True, key="lab_budget_drafters"):
        for name, alpha, cost in DRAFTERS:
            given = st.number_input(
                f"{name} drafter, α", 0.0, 1.0, alpha, 0.05, key=f"lab_b_alpha_{name}", width=150,
                help="Probability that a candidate is accepted, the same at every position.",
            )  # fmt: skip
            draft = _ms(f"{name} drafter, cost", cost, f"draft_{name}", "Milliseconds a drafted token.")
            budgets.append(Budget(float(given), gamma, draft, verify, state, baseline))
    heads = (
        Head("Drafter", number=False), Head("α"), Head("Draft, ms/token"),
        Head("Tokens a round", "E[N] = 1 + α + … + α^γ"),
        Head("Cycle, ms", "γ·draft + verify + state"), Head("ms/token", "Cycle over E[N]"), Head("Speed-up"),
        Head("Breaks even at", "Draft cost at which the speed-up is 1, in ms a token."),
    )  # fmt: skip
    lines = [
        Line(
            Cell(name),
            (
                Cell(f"{budget.alpha:g}"), Cell(f"{budget.draft_ms:g}"), Cell(f"{budget.tokens:.4f}"),
                Cell(f"{budget.cycle_ms:g}"), Cell(f"{budget.ms_per_token:.3f}"), Cell(f"{budget.speed_up:.3f} ×"),
                Cell(_break_even(budget)),
            ),
            name,
        )
        for (name, _, _), budget in zip(DRAFTERS, budgets, strict=True)
    ]  # fmt: skip
    st.html(table(heads, lines, "The budget of two drafters"))
    st.html(parts.note("info", verdict(*budgets)))
    st.html(f'<p class="sl-reason">{CHEAP}</p>')
    most = max(8.0, *(1.2 * budget.draft_ms for budget in budgets))
    drawn = []
    for (name, _, _), budget in zip(DRAFTERS, budgets, strict=True):
        costs, ratios = zip(*along_cost(budget, most), strict=True)
        drawn.append((f"{name}, α = {budget.alpha:g}", costs, ratios, budget.draft_ms, budget.speed_up))
    st.plotly_chart(
        paper_charts.speed_ups(drawn, most), config=charts.CONFIG, key="lab_budget",
        alt="Speed-up against the draft's cost a token, a line an acceptance.",
    )  # fmt: skip
    st.caption(
        "Assumes independent, equal acceptance at every position, no early stop, and stages that do not overlap. Real "
        "verification time changes with candidates, batch, context and tree shape: insert measured costs before tuning."
    )


def _ms(label: str, default: float, key: str, about: str) -> float:
    return float(st.number_input(f"{label}, ms", 0.0, 1e6, default, 0.5, key=f"lab_b_{key}", width=160, help=about))


def _break_even(budget: Budget) -> str:
    even = budget.break_even_ms
    return numbers.NOTHING if even is None else "never" if even < 0.0 else f"{even:.2f} ms"
