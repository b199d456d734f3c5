"""The one-line texts of drafters, shapes and rules: one grammar for form, command line, files and links.

``parse_*`` and ``format_*`` are inverse: ``parse(format(spec)) == spec``. Bad text raises :class:`BadInput` with a
sentence naming the text and what would be right (design.md "Shapes").
"""

from __future__ import annotations

import re
from typing import Any

from core.errors import BadInput
from core.rule_grammar import ALLOWED_HELP, RULE_HELP, RULES, format_allowed, format_rule, parse_allowed, parse_rule
from core.types import (
    ChainShape,
    DrafterSpec,
    EarlyExitDrafter,
    NoDrafter,
    NoShape,
    PromptLookupDrafter,
    Sampling,
    ShapeSpec,
    SmallModelDrafter,
    TreeShape,
    sentence,
    valid,
)

__all__ = [
    "ALLOWED_HELP",
    "DRAFTER_HELP",
    "RULES",
    "RULE_HELP",
    "SHAPE_HELP",
    "format_allowed",
    "format_drafter",
    "format_rule",
    "format_shape",
    "parse_allowed",
    "parse_drafter",
    "parse_rule",
    "parse_shape",
    "sampling_parts",
    "sampling_text",
    "sentence",
    "valid",
]

DRAFTER_HELP = "none, model, prompt_lookup, prompt_lookup:MIN,MAX or early_exit:LAYERS"
SHAPE_HELP = "none, chain:GAMMA (as chain:4) or sSTEPS_kTOPK_dNODES (as s3_k2_d6)"

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
    """What differs from the default, by name, the temperature aside; allowed sets as text."""
    default = Sampling()
    values = {name: getattr(sampling, name) for name in Sampling.model_fields if name != "temperature"}
    shown = {name: value for name, value in values.items() if value != getattr(default, name)}
    return shown | ({"allowed": format_allowed(sampling.allowed)} if "allowed" in shown else {})


def sampling_text(sampling: Sampling) -> str:
    """Temperature and whatever differs from the default, as ``T=0.7 top_k=20``; ``greedy`` at temperature 0."""
    head = "greedy" if sampling.greedy else f"T={repr(sampling.temperature).removesuffix('.0')}"
    return " ".join([head, *(f"{name}={value}" for name, value in sampling_parts(sampling).items())])


def _whole(part: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", part.strip()):
        raise BadInput(f"{part.strip()!r} in {text!r} is not a whole number.")
    return int(part)
