"""The fields of the chosen rule on the Live form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.types import (
    CosCD,
    CosWE,
    Lenience,
    MinPCeiling,
    OvershootCeiling,
    Spec,
    SpecCascade,
    Truncation,
    Typical,
)
from pages.ui import fields
from pages.ui.rule_values import REDRAWS, RULES

HELP = {
    "lossless": "Accept min(1, p/q): the output follows the target's law.",
    "block": "Judges a whole chain at once; lossless, and accepts a little more. Chains only.",
    "lenience": "Accept min(1, p/(ℓq)).",
    "cos_we": "Verifies toward a mixture of p and q.",
    "cos_cd": "Verifies toward p/q^μ, renormalised.",
    "spec_cascade": "A candidate passes when p ≥ base · max p.",
    "typical": "A candidate passes when p ≥ min(ε, δ·e^(−H)).",
    "truncation": "A candidate passes inside the set you choose.",
    "adaptive_interpolation": "Ablation: lenience's interpolation without its ceiling.",
    "overshoot_ceiling": "Ablation: a mixture, cut at p/λ.",
    "min_p_ceiling": "The draft speaks inside the min-p set; outside it is cut at p/ℓ.",
}


def rule_part() -> str:
    """The rule and its fields; the rule's name."""
    rule = st.selectbox("Rule", list(RULES), format_func=RULES.__getitem__, **fields.key("rule"))
    st.caption(HELP[rule])
    _OWN.get(rule, lambda: None)()
    return rule


def _number(label: str, spec: type[Spec], field: str, help: str | None = None, name: str | None = None) -> None:
    fields.number(label, spec, field, 0.05, help=help, name=name)


def _lenience() -> None:
    _number("Lenience ℓ", Lenience, "ell", "1 is lossless; the smaller, the more passes.")


def _cos_we() -> None:
    _number("Draft weight w", CosWE, "draft_weight", "The paper's λ is 1−w in Eq. 7-8 and w in its tables.")


def _cos_cd() -> None:
    _number("Contrast μ", CosCD, "mu", "r* = p/q^μ, renormalised; a token the draft never proposes has none.")


def _lam() -> None:
    _number("Interpolation λ", OvershootCeiling, "lam", "The target's weight, and the ceiling p/λ.")


def _cascade() -> None:
    _number("Base p", SpecCascade, "p_base", "A candidate passes when p ≥ base · max p.")
    _redraw()


def _typical() -> None:
    fields.pair_of(
        lambda: _number("ε of the rule", Typical, "epsilon", name="typical_epsilon"),
        lambda: fields.number("δ", Typical, "delta", 0.05, help="0 stands for √ε.", name="typical_delta", low=0.0),
    )
    st.toggle("All or nothing", help="Off: accept with min(1, p/τ), as the authors' code.", **fields.key("hard"))
    _redraw()


def _truncation() -> None:
    cells: list[Callable[[], Any]] = [
        lambda: fields.whole("Top-k of the set", Truncation, "top_k", help="0 is off.", name="set_top_k"),
        lambda: _number("Top-p of the set", Truncation, "top_p", "1 is off.", "set_top_p"),
        lambda: _number("Min-p of the set", Truncation, "min_p", "0 is off.", "set_min_p"),
        lambda: _number("ε of the set", Truncation, "epsilon", "0 is off.", "set_epsilon"),
        lambda: _number("η of the set", Truncation, "eta", "η-sampling's ε; 0 is off.", "set_eta"),
        lambda: fields.number("δ of η", Truncation, "delta", 0.05, help="0 stands for √η.", name="set_delta", low=0.0),
    ]
    for left, right in zip(cells[::2], cells[1::2], strict=True):
        fields.pair_of(left, right)
    _redraw()


def _hybrid() -> None:
    _number("Base p", MinPCeiling, "p_base", "The set: p ≥ base · max p.")
    _number("Ceiling ℓ", MinPCeiling, "ell", "Outside the set q is cut at p/ℓ.")


def _redraw() -> None:
    st.selectbox(
        "Redraw from",
        list(REDRAWS),
        format_func=REDRAWS.__getitem__,
        help="What a rejected position is drawn from. Paper and code disagree, so it is a choice.",
        **fields.key("redraw"),
    )
    st.toggle("Recompute the set after a rejection", **fields.key("recompute"))


_OWN: dict[str, Callable[[], None]] = {
    "lenience": _lenience,
    "cos_we": _cos_we,
    "cos_cd": _cos_cd,
    "spec_cascade": _cascade,
    "typical": _typical,
    "truncation": _truncation,
    "adaptive_interpolation": _lam,
    "overshoot_ceiling": _lam,
    "min_p_ceiling": _hybrid,
}
