"""The one-line texts of rules: ``name``, ``name:value``, ``name:value,key=value`` or ``name:key=value,key=value``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import BadInput
from core.types import (
    AdaptiveInterpolation,
    AllowedSet,
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
    valid,
)

RULE_HELP = (
    "lossless, block, lenience:ELL (as lenience:0.4), cos_we:DRAFT_WEIGHT, cos_cd:MU, "
    "spec_cascade:P_BASE[,redraw=target|target_in_set|draft_in_set][,recompute=true], "
    "typical:EPSILON[,delta=D][,redraw=…][,hard=false][,recompute=true], "
    "truncation:top_k=K (or top_p, min_p, epsilon, eta[,delta]; several combine)[,redraw=…][,recompute=true], "
    "adaptive_interpolation:LAMBDA, overshoot_ceiling:LAMBDA or min_p_ceiling:P_BASE,ell=ELL"
)

ALLOWED_HELP = "top_k=K, top_p, min_p, epsilon or eta[,delta], several with commas; a further set after a semicolon"

ALLOWED_OPTIONS = ("top_k", "top_p", "min_p", "epsilon", "eta", "delta")


@dataclass(frozen=True, slots=True)
class _Form:
    """How one rule is written: the field that stands first (None: no such), then its options by name."""

    spec: type[Spec]
    first: str | None = None
    options: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    """Options that are printed even where they have their default."""


_FORMS: dict[str, _Form] = {
    "lossless": _Form(Lossless),
    "block": _Form(Block),
    "lenience": _Form(Lenience, "ell"),
    "cos_we": _Form(CosWE, "draft_weight"),
    "cos_cd": _Form(CosCD, "mu"),
    "spec_cascade": _Form(SpecCascade, "p_base", ("redraw", "recompute"), ("redraw",)),
    "typical": _Form(Typical, "epsilon", ("delta", "redraw", "hard", "recompute"), ("redraw",)),
    "truncation": _Form(Truncation, None, (*ALLOWED_OPTIONS, "redraw", "recompute"), ("redraw",)),
    "adaptive_interpolation": _Form(AdaptiveInterpolation, "lam"),
    "overshoot_ceiling": _Form(OvershootCeiling, "lam"),
    "min_p_ceiling": _Form(MinPCeiling, "p_base", ("ell",), ("ell",)),
}

RULES = tuple(_FORMS)
"""Names of all rules."""


def parse_rule(text: str) -> RuleSpec:
    """``lossless`` · ``lenience:ℓ`` · ``spec_cascade:p_base[,redraw=…]`` … (:data:`RULE_HELP`)."""
    name, colon, rest = text.strip().partition(":")
    form = _FORMS.get(name)
    parts = rest.split(",") if colon else []
    if form is None or bool(colon) != bool(form.first or form.options):
        raise _no_rule(text)
    fields: dict[str, object] = {}
    if form.first:
        value = parts.pop(0).strip()
        if not value or (parts and not form.options):
            raise _no_rule(text)
        fields[form.first] = _number(value, text)
    return valid(form.spec, **fields, **_options(parts, form.options, text))  # type: ignore[return-value]


def format_rule(spec: RuleSpec) -> str:
    """The text that :func:`parse_rule` reads back."""
    form = _FORMS[spec.kind]
    parts = [repr(getattr(spec, form.first))] if form.first else []
    parts += _written(spec, form.options, form.printed)
    return f"{spec.kind}:{','.join(parts)}" if parts else spec.kind


def parse_allowed(text: str) -> tuple[AllowedSet, ...]:
    """Allowed sets in their order: ``top_k=2,min_p=0.1;eta=0.05`` …; nothing is none."""
    sets = [part for part in text.split(";") if part.strip()]
    return tuple(valid(AllowedSet, **_options(part.strip().split(","), ALLOWED_OPTIONS, text)) for part in sets)


def format_allowed(sets: Sequence[AllowedSet]) -> str:
    """The text that :func:`parse_allowed` reads back; sets that hold everything are left out."""
    return ";".join(",".join(_written(one, ALLOWED_OPTIONS)) for one in sets if not one.everything)


def _written(spec: Spec, options: tuple[str, ...], always: tuple[str, ...] = ()) -> list[str]:
    defaults = {name: field.default for name, field in type(spec).model_fields.items()}
    values = {name: getattr(spec, name) for name in options}
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
        if name in always or value != defaults[name]
    ]


def _options(parts: list[str], known: tuple[str, ...], text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key in options:
            raise BadInput(f"{part!r} in {text!r} is not a key=value option that stands there once.")
        if key not in known:
            names = f"{' and '.join(known)} {'are' if len(known) > 1 else 'is'}"
            raise BadInput(f"{f'{key}={value}'!r} in {text!r} is no option: {names}.")
        options[key] = value
    return options


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise BadInput(f"{part!r} in {text!r} is not a number.") from None


def _no_rule(text: str) -> BadInput:
    return BadInput(f"{text!r} is no rule: write {RULE_HELP}.")
