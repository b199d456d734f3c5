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
from pages.ui.kit import fields
from pages.ui.live.rule_values import REDRAWS, RULES

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


def part(prefix: str) -> str:
    """The rule and its fields, under keys that begin with ``prefix``; the rule's name."""
    rule = st.selectbox("Rule", list(RULES), format_func=RULES.__getitem__, **fields.key(prefix, "rule"))
    st.caption(HELP[rule])
    if own := _OWN.get(rule):
        own(prefix)
    return rule


def _number(
    prefix: str, label: str, spec: type[Spec], field: str, help: str | None = None, name: str | None = None
) -> None:
    fields.number(label, spec, field, 0.05, prefix, help=help, name=name)


def _lenience(prefix: str) -> None:
    _number(prefix, "Lenience ℓ", Lenience, "ell", "1 is lossless; the smaller, the more passes.")


def _cos_we(prefix: str) -> None:
    _number(prefix, "Draft weight w", CosWE, "draft_weight", "The paper's λ is 1−w in Eq. 7-8 and w in its tables.")


def _cos_cd(prefix: str) -> None:
    _number(prefix, "Contrast μ", CosCD, "mu", "r* = p/q^μ, renormalised; a token the draft never proposes has none.")


def _lam(prefix: str) -> None:
    _number(prefix, "Interpolation λ", OvershootCeiling, "lam", "The target's weight, and the ceiling p/λ.")


def _cascade(prefix: str) -> None:
    _number(prefix, "Base p", SpecCascade, "p_base", "A candidate passes when p ≥ base · max p.")
    _redraw(prefix)


def _typical(prefix: str) -> None:
    fields.pair_of(
        lambda: _number(prefix, "ε of the rule", Typical, "epsilon", name="typical_epsilon"),
        lambda: fields.number(
            "δ", Typical, "delta", 0.05, prefix, help="0 stands for √ε.", name="typical_delta", low=0.0
        ),
    )
    st.toggle(
        "All or nothing", help="Off: accept with min(1, p/τ), as the authors' code.", **fields.key(prefix, "hard")
    )
    _redraw(prefix)


def _truncation(prefix: str) -> None:
    cells: list[Callable[[], Any]] = [
        lambda: fields.whole("Top-k of the set", Truncation, "top_k", prefix, help="0 is off.", name="set_top_k"),
        lambda: _number(prefix, "Top-p of the set", Truncation, "top_p", "1 is off.", "set_top_p"),
        lambda: _number(prefix, "Min-p of the set", Truncation, "min_p", "0 is off.", "set_min_p"),
        lambda: _number(prefix, "ε of the set", Truncation, "epsilon", "0 is off.", "set_epsilon"),
        lambda: _number(prefix, "η of the set", Truncation, "eta", "η-sampling's ε; 0 is off.", "set_eta"),
        lambda: fields.number(
            "δ of η", Truncation, "delta", 0.05, prefix, help="0 stands for √η.", name="set_delta", low=0.0
        ),
    ]
    for left, right in zip(cells[::2], cells[1::2], strict=True):
        fields.pair_of(left, right)
    _redraw(prefix)


def _hybrid(prefix: str) -> None:
    _number(prefix, "Base p", MinPCeiling, "p_base", "The set: p ≥ base · max p.")
    _number(prefix, "Ceiling ℓ", MinPCeiling, "ell", "Outside the set q is cut at p/ℓ.")


def _redraw(prefix: str) -> None:
    st.selectbox(
        "Redraw from",
        list(REDRAWS),
        format_func=REDRAWS.__getitem__,
        help="What a rejected position is drawn from. Paper and code disagree, so it is a choice.",
        **fields.key(prefix, "redraw"),
    )
    st.toggle("Recompute the set after a rejection", **fields.key(prefix, "recompute"))


_OWN: dict[str, Callable[[str], None]] = {
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
