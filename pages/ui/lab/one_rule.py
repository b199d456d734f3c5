"""Rule lab, one rule in detail: its formulas, its law as in the paper's Figure 2, and its parameter swept."""

from __future__ import annotations

import streamlit as st

from core.grammar import parse_rule, rule_text
from core.lab.vocabularies import LabPair
from core.rules.catalogue import RuleEntry
from core.types import TargetLawSpec
from pages.ui.kit import charts, numbers, parts
from pages.ui.lab import charts as lab_charts
from pages.ui.lab import compute, every_rule, rule_fields
from pages.ui.lab.tables import Cell, Head, Line, probability, table, token

MATCHED = "The matched law is p_Θ, the target under the same allowed set; TV {tv}, KL {kl}."


def draw(pair: LabPair) -> None:
    """The chosen rule."""
    with st.container(horizontal=True, key="lab_choice"):
        rule = rule_fields.choose("lab_rule")
        values = rule_fields.fields_of(rule)
    text = rule_text(rule, values)
    [one] = compute.emissions((text,), pair)
    st.html(_formulas(rule, text))
    kl = numbers.NOTHING if one.kl is None else f"{one.kl:.4f}"
    escape = f"{numbers.rate(one.escaped)} of the law lies where p is 0." if one.kl is None else "KL(emitted‖p)."
    st.html(
        parts.value_cards(
            (
                ("Accepted", numbers.probability(one.mass), "Σ q·a, the acceptance mass."),
                ("TV to p", f"{one.tv:.4f}", "½ Σ |emitted − p|."),
                ("KL to p, nats", kl, escape),
                ("Overshoot", numbers.probability(one.overshoot), "Expected share of tested tokens with q > p/ℓ."),
            )
        )
    )
    if one.allowed is not None:
        matched = numbers.NOTHING if one.ref_kl is None else f"{one.ref_kl:.4f} nats"
        escaped = f" ({numbers.rate(one.ref_escaped)} of the law escapes)" if one.ref_kl is None else ""
        st.caption(MATCHED.format(tv=f"{one.ref_tv:.4f}", kl=matched + escaped))
    if one.note:
        st.html(parts.note("info", one.note))
    if remark := _remark(rule, text):
        st.caption(remark)
    figure = compute.figure2(pair, ((rule.label, text),))
    with st.container(key="lab_one_charts"):
        left, right = st.columns(2, gap="medium")
    with left:
        st.html('<h3 class="sl-h">What is emitted <small>tokens by falling p</small></h3>')
        st.plotly_chart(
            lab_charts.law(figure, figure.panels[0], pair, height=350), config=charts.CONFIG, key="lab_law",
            alt=f"Target, draft, their overlap and what {rule.label} emits, token by token.",
        )  # fmt: skip
    with right:
        _sweep(rule, values, pair)
    heads = (
        Head("Token", number=False), Head("p"), Head("q"), Head("Accept", "a(x)"),
        Head("Accepted", "q·a"), Head("Redrawn from", "r(x)"), Head("Emitted", "q·a + (1 − Σ q·a)·r"),
        Head("Bonus", "What follows a wholly accepted draft is drawn from."),
    )  # fmt: skip
    lines = [
        Line(
            Cell(token(name), tip=name),
            tuple(probability(vector[place]) for vector in
                  (pair.p, pair.q, one.accept, one.accepted, one.residual, one.induced, one.bonus)),
            name,
        )
        for place, name in enumerate(pair.tokens)
    ]  # fmt: skip
    st.html(table(heads, lines, f"{rule.label}, token by token"))


def _sweep(rule: RuleEntry, values: dict, pair: LabPair) -> None:
    swept = rule.sweep is not None
    st.html(
        f'<h3 class="sl-h">{"Its parameter swept" if swept else "Where it lies"}'
        " <small>marks: the paper’s grid</small></h3>"
    )
    up = every_rule.measure("lab_measure_one")
    [one] = compute.emissions((rule_text(rule, values),), pair)
    path = every_rule.path(rule, values, pair, up, one)
    if all(point.y is None for point in path.points):
        st.html(parts.empty("No finite divergence", "The law leaves the support everywhere: choose a TV."))
        return
    figure = lab_charts.trade_off(
        [path], "acceptance mass", every_rule.MEASURES[up], f"one_{rule.name}_{up}", height=310
    )
    st.plotly_chart(
        figure, config=charts.CONFIG, key="lab_sweep",
        alt=f"Acceptance mass of {rule.label} against {every_rule.MEASURES[up]} along its parameter.",
    )  # fmt: skip


def _remark(rule: RuleEntry, text: str) -> str:
    spec = parse_rule(text)
    parts = [rule.remark(spec)]
    if isinstance(spec, TargetLawSpec):
        parts.append("r* needs a draft: a bonus token, after a wholly accepted draft, comes from p.")
    return " ".join(part for part in parts if part)


def _formulas(rule: RuleEntry, text: str) -> str:
    rows = [("Accepts", rule.accept), ("Redraws from", rule.redraws), ("Emits", rule.emits), ("Source", rule.source),
            ("Written", text)]  # fmt: skip
    return f'<p class="sl-reason">{rule.about}</p>' + parts.pairs_list(rows)
