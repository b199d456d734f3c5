"""Drafters, shapes and rules as one-line texts: one grammar for form, command line, files and links.

A rule is written ``name``, ``name:value``, ``name:value,key=value`` or ``name:key=value,key=value``, with the fields of
its specification in the catalogue. ``parse_*`` and ``format_*`` are inverses: ``parse(format(spec)) == spec``. Bad text
raises :class:`BadInput` with a sentence that names the text and the right form (design.md "Shapes").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import BadInput
from core.rules.catalogue import BY_NAME, KINDS, RULES, RuleEntry, Values
from core.types import (
    AllowedSet,
    ChainShape,
    DrafterSpec,
    EarlyExitDrafter,
    NoDrafter,
    NoShape,
    PromptLookupDrafter,
    RuleSpec,
    Sampling,
    ShapeSpec,
    SmallModelDrafter,
    Spec,
    TreeShape,
    valid,
)

DRAFTER_HELP = "none, model, prompt_lookup, prompt_lookup:MIN,MAX or early_exit:LAYERS"
SHAPE_HELP = "none, chain:GAMMA (as chain:4) or sSTEPS_kTOPK_dNODES (as s3_k2_d6)"

RULE_HELP = f"{', '.join(entry.usage for entry in RULES[:-1])} or {RULES[-1].usage}"
ALLOWED_HELP = "top_k=K, top_p, min_p, epsilon or eta[,delta], several with commas; a further set after a semicolon"

_ALLOWED_FIELDS = tuple(AllowedSet.model_fields)
_TREE = re.compile(r"s(\d{1,9})_k(\d{1,9})_d(\d{1,9})")


def parse_drafter(text: str) -> DrafterSpec:
    """``none`` · ``model`` · ``prompt_lookup[:min,max]`` · ``early_exit:k``."""
    name, colon, rest = text.strip().partition(":")
    if name == "prompt_lookup" and rest:
        low, comma, high = rest.partition(",")
        return valid(
            PromptLookupDrafter,
            min_ngram=_whole(low, text),
            max_ngram=_whole(high if comma else low, text),
        )
    if name == "early_exit" and rest:
        return valid(EarlyExitDrafter, layers=_whole(rest, text))
    plain = {
        "none": NoDrafter,
        "model": SmallModelDrafter,
        "prompt_lookup": PromptLookupDrafter,
    }
    if name in plain and not colon:
        return plain[name]()
    raise BadInput(f"{text!r} is no drafter: write {DRAFTER_HELP}.")


def format_drafter(spec: DrafterSpec) -> str:
    """The text that :func:`parse_drafter` reads back."""
    match spec:
        case PromptLookupDrafter(min_ngram=low, max_ngram=high):
            return "prompt_lookup" if spec == PromptLookupDrafter() else f"prompt_lookup:{low},{high}"
        case EarlyExitDrafter(layers=layers):
            return f"early_exit:{layers}"
        case _:
            return spec.kind


def parse_shape(text: str) -> ShapeSpec:
    """``none`` · ``chain:γ`` · ``s{steps}_k{topk}_d{nodes}``."""
    clean = text.strip()
    if clean == "none":
        return NoShape()
    if clean.startswith("chain:"):
        return valid(ChainShape, gamma=_whole(clean.removeprefix("chain:"), text))
    if tree := _TREE.fullmatch(clean):
        steps, topk, nodes = map(int, tree.groups())
        return valid(TreeShape, steps=steps, topk=topk, nodes=nodes)
    raise BadInput(f"{text!r} is no shape: write {SHAPE_HELP}.")


def format_shape(spec: ShapeSpec) -> str:
    """The text that :func:`parse_shape` reads back."""
    match spec:
        case ChainShape(gamma=gamma):
            return f"chain:{gamma}"
        case TreeShape(steps=steps, topk=topk, nodes=nodes):
            return f"s{steps}_k{topk}_d{nodes}"
        case NoShape():
            return "none"


def sampling_parts(sampling: Sampling) -> dict[str, Any]:
    """Settings other than the temperature that differ from their defaults, by name; allowed sets as text."""
    default = Sampling()
    values = {name: getattr(sampling, name) for name in Sampling.model_fields if name != "temperature"}
    shown = {name: value for name, value in values.items() if value != getattr(default, name)}
    return shown | ({"allowed": format_allowed(sampling.allowed)} if "allowed" in shown else {})


def sampling_text(sampling: Sampling) -> str:
    """Temperature and all settings that differ from their defaults, as ``T=0.7 top_k=20``; ``greedy`` if greedy."""
    head = "greedy" if sampling.greedy else f"T={repr(sampling.temperature).removesuffix('.0')}"
    return " ".join([head, *(f"{name}={value}" for name, value in sampling_parts(sampling).items())])


@dataclass(frozen=True, slots=True)
class _Form:
    """Written form of a rule: the field whose value comes first (empty: none), then its ``options`` by name;
    ``printed``: fields that are printed even when they have their default."""

    first: str
    options: tuple[str, ...]
    printed: frozenset[str]


def _form(spec: type[Spec]) -> _Form:
    """The written form of a specification: its first required field comes first."""
    names = [name for name in spec.model_fields if name != "kind"]
    required = [name for name in names if spec.model_fields[name].is_required()]
    first = required[0] if required else ""
    return _Form(first, tuple(name for name in names if name != first), frozenset({*required, "redraw"}))


def parse_rule(text: str) -> RuleSpec:
    """``lossless`` · ``lenience:ℓ`` · ``spec_cascade:p_base[,redraw=…]`` … (:data:`RULE_HELP`)."""
    name, colon, rest = text.strip().partition(":")
    if name not in KINDS:
        raise _no_rule(text)
    spec = BY_NAME[name].spec
    form = _form(spec)
    parts = rest.split(",") if colon else []
    if bool(colon) != bool(form.first or form.options):
        raise _no_rule(text)
    fields: dict[str, object] = {}
    if form.first:
        value = parts.pop(0).strip()
        if not value or (parts and not form.options):
            raise _no_rule(text)
        fields[form.first] = _number(value, text)
    return valid(spec, **fields, **_options(parts, form.options, text))  # type: ignore[return-value]


def format_rule(spec: RuleSpec) -> str:
    """The text that :func:`parse_rule` reads back."""
    form = _form(type(spec))
    parts = [repr(getattr(spec, form.first))] if form.first else []
    parts += _written(spec, form.options, form.printed)
    return f"{spec.kind}:{','.join(parts)}" if parts else spec.kind


def rule_text(entry: RuleEntry, values: Values) -> str:
    """Text of the catalogue's rule with these form values. Raises BadInput for a value out of its range."""
    return format_rule(valid(lambda: entry.make(values)))


def parse_allowed(text: str) -> tuple[AllowedSet, ...]:
    """Allowed sets in order, as ``top_k=2,min_p=0.1;eta=0.05``; empty text means no set."""
    sets = [part for part in text.split(";") if part.strip()]
    return tuple(valid(AllowedSet, **_options(part.strip().split(","), _ALLOWED_FIELDS, text)) for part in sets)


def format_allowed(sets: Sequence[AllowedSet]) -> str:
    """The text that :func:`parse_allowed` reads back; sets that hold everything are left out."""
    return ";".join(",".join(_written(one, _ALLOWED_FIELDS)) for one in sets if not one.everything)


def _written(spec: Spec, options: tuple[str, ...], always: frozenset[str] = frozenset()) -> list[str]:
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
            raise BadInput(f"{part!r} in {text!r} is not a key=value option that is given once.")
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


def _whole(part: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", part.strip()):
        raise BadInput(f"{part.strip()!r} in {text!r} is not a whole number.")
    return int(part)
