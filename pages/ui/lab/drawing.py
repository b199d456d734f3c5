"""Rule lab, by drawing: the engine's own verifier decides many rounds; what it emits is shown beside the exact law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import streamlit as st

from core.grammar import rule_text
from core.lab.vocabularies import LabPair
from core.rules.catalogue import BLOCK, LAB_RULES
from pages.ui.kit import charts, numbers, parts
from pages.ui.lab import charts as lab_charts
from pages.ui.lab import compute, rule_fields
from pages.ui.lab.charts import band
from pages.ui.lab.tables import Cell, Head, Line, table, token

if TYPE_CHECKING:
    from core.drafting.draft import Drawing
    from core.lab.drawing import Drawn, Share

CHAIN = "chain"
DRAWINGS: dict[Literal["chain"] | Drawing, str] = {
    CHAIN: "A chain, each candidate drawn from q",
    "with_replacement": "Siblings drawn from q, with replacement",
    "without_replacement": "Siblings drawn from q, without replacement",
    "deterministic": "Siblings that are q's best (EAGLE's trees)",
}
MAX_DRAWN = 20_000


def draw(pair: LabPair) -> None:
    """The fields, then counts against theory."""
    with st.container(horizontal=True, key="lab_choice"):
        rule = rule_fields.choose("lab_rule_drawn", (BLOCK,))
        values = rule_fields.fields_of(rule)
    with st.container(horizontal=True, key="lab_drawn_fields"):
        drawing = st.selectbox(
            "Candidates", list(DRAWINGS), format_func=DRAWINGS.__getitem__, key="lab_drawing", width=330,
            persist_state="session",
        )  # fmt: skip
        count = int(
            st.number_input(
                "γ" if drawing == CHAIN else "Siblings", 1, 16 if drawing == CHAIN else 4, 4 if drawing == CHAIN else 2,
                key=f"lab_count_{drawing == CHAIN}", width=110,
                help="Candidates of a chain" if drawing == CHAIN else "Candidates of the one position",
                persist_state="session",
            )
        )  # fmt: skip
        drawn = int(
            st.number_input("Rounds", 100, MAX_DRAWN, 2000, step=1000, key="lab_rounds", width=130,
                            help="More rounds, narrower bands; 10,000 take a few seconds.", persist_state="session")
        )  # fmt: skip
        seed = int(st.number_input("Seed", 0, 2**31 - 1, 0, key="lab_seed", width=130, persist_state="session"))
    if rule is BLOCK and drawing != "chain":
        st.html(parts.note("info", "Block verification judges a chain: choose a chain as candidates."))
        return
    text = rule_text(rule, values)
    if drawing == "chain":
        found = compute.chain(text, pair, count, drawn, seed)
    else:
        found = compute.siblings(text, pair, count, drawing, drawn, seed)
    _verdict(found)
    st.plotly_chart(
        lab_charts.drawn_law(found, pair), config=charts.CONFIG, key="lab_drawn_chart",
        alt="Observed shares of the first emitted token with their bands, beside the exact law.",
    )  # fmt: skip
    lines = [_line(token(name), share, name) for name, share in zip(pair.tokens, found.law, strict=True)]
    lines.append(_line("a candidate accepted", found.accepted, "", group="The first position"))
    if found.tokens_per_round is not None:
        lines.append(_line("tokens per round", found.tokens_per_round, "", group="The whole round"))
    heads = (
        Head("First emitted token", number=False),
        Head("Drawn"), Head("95 % band", "Token bands hold together (Goodman); the others each for itself."),
        Head("Exact", "From the rule's vectors, every list of siblings weighed."), Head("Inside"),
    )  # fmt: skip
    st.html(table(heads, lines, "Drawn beside exact"))
    _test_every_rule(pair, drawn, seed)
    st.caption(
        "Candidates come from the seed's draft stream, coins and redraws from streams of their own, as in a run. "
        "p and q are the same at every prefix. Exact tokens per round: E[N] of the acceptance mass; for block "
        "verification every chain weighed."
        + (" Siblings are judged one after the other; their exact law weighs every list of them."
           if drawing != CHAIN else "")
    )  # fmt: skip


def _test_every_rule(pair: LabPair, samples: int, seed: int) -> None:
    """A button, and after it a chi-square test of every rule, at the parameters of the fields."""
    asked = st.button(
        "Test every rule by drawing", icon=":material/rule:", key="lab_test",
        help=f"{numbers.quantity(samples)} tokens a rule through the verifier, each rule at its parameters. Lossless "
        "rules are tested against p, lossy ones against their own law (Pearson's χ²).",
    )  # fmt: skip
    if not asked:
        return
    values = rule_fields.current()
    rules = (*LAB_RULES, BLOCK)
    found = [compute.verdict(rule_text(rule, values), pair, samples, seed) for rule in rules]
    heads = (
        Head("Rule", number=False), Head("Tested against", number=False), Head("TV to p", "Of the law tested against."),
        Head("χ²", "Pearson's, tokens that are expected seldom counted together."), Head("Degrees"),
        Head("p-value", "How often a sound verifier looks at least this wrong."), Head("Outcome", number=False),
    )  # fmt: skip
    lines = [
        Line(
            Cell(rule.label, one.rule),
            (
                Cell("p" if one.lossless else "its own law", kind="left"), Cell(f"{one.tv:.4f}"),
                Cell(f"{one.test.statistic:.2f}"), Cell(f"{one.test.degrees}"), Cell(f"{one.test.p_value:.3g}"),
                Cell("✓ follows" if one.follows else "✗ does not follow", kind="left", tip=one.sentence),
            ),
            f"test_{rule.name}",
        )
        for rule, one in zip(rules, found, strict=True)
    ]  # fmt: skip
    st.html(table(heads, lines, "Every rule tested by drawing"))
    for one in found:
        if not one.follows:
            st.html(parts.note("bad", one.sentence))


def _verdict(found: Drawn) -> None:
    if found.outside is None:
        text = "Too many lists of siblings to enumerate: there is no exact law beside this drawing."
        st.html(parts.note("info", text))
    elif found.outside == 0:
        many = numbers.quantity(found.rounds)
        text = f"{many} rounds through the verifier; every token's exact probability is in its band."
        st.html(parts.note("info", text, "They agree."))
    else:
        many = "1 token lies" if found.outside == 1 else f"{found.outside} tokens lie"
        text = f"{many} outside the band. The bands miss in 1 drawing of 20 by chance: try another seed."
        st.html(parts.note("warn", text))


def _line(label: str, share: Share, name: str, group: str = "") -> Line:
    inside = numbers.NOTHING if share.inside is None else "✓" if share.inside else "✗"
    exact = numbers.NOTHING if share.exact is None else f"{share.exact:.4f}"
    cells = (Cell(f"{share.seen:.4f}"), Cell(band(share)), Cell(exact), Cell(inside))
    return Line(Cell(label, tip=name), cells, label, group)
