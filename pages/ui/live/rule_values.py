"""Rules as values of the form: which fields each rule has, and their names there. No Streamlit here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.types import (
    AdaptiveInterpolation,
    Block,
    CosCD,
    CosWE,
    Lenience,
    Lossless,
    MinPCeiling,
    OvershootCeiling,
    RuleSpec,
    Spec,
    SpecCascade,
    Truncation,
    Typical,
)

Values = dict[str, Any]

RULES = {
    "lossless": "Lossless",
    "block": "Block (lossless)",
    "lenience": "Lenience",
    "cos_we": "CoS, weighted ensemble",
    "cos_cd": "CoS, contrastive",
    "spec_cascade": "SpecCascade",
    "typical": "Typical acceptance",
    "truncation": "Truncation, any set",
    "adaptive_interpolation": "Adaptive interpolation",
    "overshoot_ceiling": "Overshoot ceiling",
    "min_p_ceiling": "Min-p with ceiling",
}

REDRAWS = {"target": "target p", "target_in_set": "p inside the set", "draft_in_set": "q inside the set"}

_SPECS: dict[str, type[Spec]] = {
    "lossless": Lossless,
    "block": Block,
    "lenience": Lenience,
    "cos_we": CosWE,
    "cos_cd": CosCD,
    "spec_cascade": SpecCascade,
    "typical": Typical,
    "truncation": Truncation,
    "adaptive_interpolation": AdaptiveInterpolation,
    "overshoot_ceiling": OvershootCeiling,
    "min_p_ceiling": MinPCeiling,
}

_OWN_NAMES = {
    "typical": {"epsilon": "typical_epsilon", "delta": "typical_delta"},
    "truncation": {name: f"set_{name}" for name in ("top_k", "top_p", "min_p", "epsilon", "eta", "delta")},
}
"""Names in the form of fields that sampling has as well, or that mean another number in another rule."""

DEFAULTS: Values = {
    "rule": "lossless",
    "ell": 0.5,
    "draft_weight": 0.5,
    "mu": 0.5,
    "lam": 0.5,
    "p_base": 0.5,
    "redraw": "target_in_set",
    "recompute": False,
    "hard": True,
    "typical_epsilon": 0.3,
    "typical_delta": 0.0,
    "set_top_k": 0,
    "set_top_p": 1.0,
    "set_min_p": 0.1,
    "set_epsilon": 0.0,
    "set_eta": 0.0,
    "set_delta": 0.0,
}
"""A δ of 0 in the form stands for √ε."""


def rule_of(values: Mapping[str, Any]) -> RuleSpec:
    """The rule these values ask for. Raises pydantic's ValidationError."""
    kind = values["rule"]
    if kind not in _SPECS:
        return Lossless()
    found = {field: values[name] for field, name in _names(kind).items()}
    if "delta" in found:
        found["delta"] = found["delta"] or None
    return _SPECS[kind](**found)  # type: ignore[return-value]


def rule_values(spec: RuleSpec) -> Values:
    """The values that ask for this rule."""
    found = {name: getattr(spec, field) for field, name in _names(spec.kind).items()}
    return {"rule": spec.kind} | {name: 0.0 if value is None else value for name, value in found.items()}


def _names(kind: str) -> dict[str, str]:
    own = _OWN_NAMES.get(kind, {})
    return {field: own.get(field, field) for field in _SPECS[kind].model_fields if field != "kind"}
