"""Rule lab, all rules at once: what each accepts, redraws from and emits, and how far that is from the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from core.grammar import rule_text
from core.lab.vocabularies import LabPair
from core.rules.catalogue import LAB_RULES, RuleEntry
from pages.ui.kit import charts, numbers, parts
from pages.ui.lab import charts as lab_charts
from pages.ui.lab import compute, rule_fields
from pages.ui.lab.charts import Path, Point
from pages.ui.lab.tables import Cell, Head, Line, distance, nats, probability, table, token

if TYPE_CHECKING:
    from core.lab.emission import Emission

VECTORS = {"induced": "Emitted law", "accept": "Accept probability", "residual": "Redrawn from"}
MEASURES = {
    "tv": "TV to p",
    "kl": "KL to p, nats",
    "ref_tv": "TV to the matched law",
    "ref_kl": "KL to the matched law, nats",
}
HEADS = (
    Head("Rule", number=False),
    Head("Accepted", "Σ q·a: how often a candidate drawn from q is accepted (acceptance mass)."),
    Head("TV to p", "Total variation between what the rule emits and p."),
    Head("KL to p", "KL(emitted‖p) in nats; “–” where the law leaves the support of p."),
    Head(
        "TV matched", "To the law that the rule is judged by: p_Θ of the same allowed set for truncation rules, else p."
    ),
    Head("KL matched", "As TV matched, in nats."),
    Head("Overshoot", "Expected share of tested tokens with q > p/ℓ (ℓ or λ of the rule, else 1)."),
)


def draw(pair: LabPair) -> None:
    """Parameters, the table, the trade-off of every rule."""
    with st.expander("Parameters of the rules", icon=":material/tune:"):
        values = rule_fields.all_fields()
    found = compute.emissions(tuple(rule_text(rule, values) for rule in LAB_RULES), pair)
    shown = st.segmented_control(
        "Token by token", list(VECTORS), format_func=VECTORS.__getitem__, default="induced", required=True,
        key="lab_vector",
    )  # fmt: skip
    st.html(table((*HEADS, *_token_heads(pair)), _lines(found, shown or "induced"), "Every rule at this p and q"))
    for note in dict.fromkeys(one.note for one in found if one.note):
        which = ", ".join(rule.label for rule, one in zip(LAB_RULES, found, strict=True) if one.note == note)
        st.html(parts.note("info", note, f"{which}:"))
    st.caption(
        "Bonus tokens, drawn after a whole draft was accepted, come from p, or from p_Θ for redraws inside the set; "
        "the law of a collaborative rule does not hold there. Block verification is not here: it judges a whole chain."
    )
    st.html('<h3 class="sl-h">Each rule along its parameter <small>large: as chosen above</small></h3>')
    up = measure("lab_measure_all")
    paths = [path(rule, values, pair, up, one) for rule, one in zip(LAB_RULES, found, strict=True)]
    figure = lab_charts.trade_off(paths, "acceptance mass", MEASURES[up], f"all_{up}", height=460)
    st.plotly_chart(
        figure, config=charts.CONFIG, key="lab_trade_off",
        alt=f"Acceptance mass of every rule against {MEASURES[up]}, a line a rule along its parameter.",
    )  # fmt: skip


def measure(key: str) -> str:
    """Which distance is drawn."""
    chosen = st.segmented_control(
        "Distance", list(MEASURES), format_func=MEASURES.__getitem__, default="tv", required=True, key=key,
        label_visibility="collapsed",
    )  # fmt: skip
    return chosen or "tv"


def path(rule: RuleEntry, values: Mapping[str, Any], pair: LabPair, up: str, here: Emission) -> Path:
    """The rule along its parameter, marked at the paper's grid."""
    swept, parameter = rule.swept(), rule.sweep
    if parameter is None:
        return Path(rule.label, (_point(here, up, rule.label),))
    texts = tuple(rule_text(rule, {**values, parameter.name: value}) for value in swept)
    marks = parameter.grid or swept
    points = tuple(
        _point(one, up, f"{parameter.symbol} = {value:g}", value in marks)
        for value, one in zip(swept, compute.emissions(texts, pair), strict=True)
    )
    chosen = values[parameter.name]
    return Path(rule.label, points, _point(here, up, f"{parameter.symbol} = {chosen:g}"))


def _point(one: Emission, up: str, label: str, marked: bool = True) -> Point:
    return Point(one.mass, getattr(one, up), label, marked)


def _token_heads(pair: LabPair) -> list[Head]:
    return [Head(token(text), text) for text in pair.tokens]


def _lines(found: Sequence[Emission], vector: str) -> list[Line]:
    lines = []
    family = ""
    for rule, one in zip(LAB_RULES, found, strict=True):
        cells = (
            probability(one.mass),
            distance(one.tv),
            nats(one.kl, one.escaped),
            distance(one.ref_tv),
            nats(one.ref_kl, one.ref_escaped),
            Cell(numbers.probability(one.overshoot)),
            *(probability(value) for value in getattr(one, vector)),
        )
        tip = f"accept {rule.accept}\nredraw {rule.redraws}\nemits {rule.emits}\n{rule.source}"
        group = rule.family if rule.family != family else ""
        family = rule.family
        lines.append(Line(Cell(rule.label, one.rule, tip=tip), cells, rule.name, group))
    return lines
