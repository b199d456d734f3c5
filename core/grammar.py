"""The one-line texts of drafters, shapes and rules: one grammar for form, command line, files and links.

``parse_*`` and ``format_*`` are inverse: ``parse(format(spec)) == spec``. Bad text raises :class:`BadInput` with a
sentence naming the text and what would be right (design.md "Shapes").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from core.errors import BadInput
from core.types import (
    ChainShape,
    DrafterSpec,
    EarlyExitDrafter,
    Lenience,
    Lossless,
    NoDrafter,
    NoShape,
    PromptLookupDrafter,
    RuleSpec,
    ShapeSpec,
    SmallModelDrafter,
    SpecCascade,
    TreeShape,
)

DRAFTER_HELP = "none, model, prompt_lookup, prompt_lookup:MIN,MAX or early_exit:LAYERS"
SHAPE_HELP = "none, chain:GAMMA (as chain:4) or sSTEPS_kTOPK_dNODES (as s3_k2_d6)"
RULE_HELP = "lossless, lenience:ELL (as lenience:0.4) or spec_cascade:P_BASE[,redraw=target|target_in_set|draft_in_set]"

CASCADE_OPTIONS = ("redraw", "recompute")

_TREE = re.compile(r"s(\d{1,9})_k(\d{1,9})_d(\d{1,9})")


def sentence(error: ValidationError) -> str:
    """Pydantic's first complaint as one sentence with the field and the value."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{message}."
    field = " ".join(str(part) for part in first["loc"][-2:] if not isinstance(part, int)) or "value"
    if first["type"] == "missing":
        return f"{field} is missing."
    shown = repr(first.get("input"))
    return f"{field} is {shown if len(shown) <= 60 else shown[:57] + '…'}: {message[0].lower()}{message[1:]}."


T = TypeVar("T")


def valid(make: Callable[..., T], **fields: Any) -> T:
    """``make(**fields)``, with pydantic's complaint turned into :class:`BadInput`."""
    try:
        return make(**fields)
    except ValidationError as error:
        raise BadInput(sentence(error)) from error


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


def parse_rule(text: str) -> RuleSpec:
    """``lossless`` · ``lenience:ℓ`` · ``spec_cascade:p_base[,redraw=…][,recompute=true]``."""
    name, colon, rest = text.strip().partition(":")
    first, options = _options(rest, text)
    if name == "lossless" and not colon:
        return Lossless()
    if name == "lenience" and first and not options:
        return valid(Lenience, ell=_number(first, text))
    if name == "spec_cascade" and first:
        if unknown := next((key for key in options if key not in CASCADE_OPTIONS), None):
            option = f"{unknown}={options[unknown]}"
            raise BadInput(f"{option!r} in {text!r} is no option: {' and '.join(CASCADE_OPTIONS)} are.")
        return valid(SpecCascade, p_base=_number(first, text), **options)
    raise BadInput(f"{text!r} is no rule: write {RULE_HELP}.")


def format_rule(spec: RuleSpec) -> str:
    """The text that :func:`parse_rule` reads back."""
    match spec:
        case Lenience(ell=ell):
            return f"lenience:{ell!r}"
        case SpecCascade(p_base=p_base, redraw=redraw, recompute=recompute):
            return f"spec_cascade:{p_base!r},redraw={redraw}" + (",recompute=true" if recompute else "")
        case Lossless():
            return "lossless"


def _options(rest: str, text: str) -> tuple[str, dict[str, str]]:
    first, *others = rest.split(",")
    options: dict[str, str] = {}
    for other in others:
        key, equals, value = other.partition("=")
        if not equals or key.strip() in options:
            raise BadInput(f"{other!r} in {text!r} is not a key=value option that stands there once.")
        options[key.strip()] = value.strip()
    return first.strip(), options


def _whole(part: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", part.strip()):
        raise BadInput(f"{part.strip()!r} in {text!r} is not a whole number.")
    return int(part)


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise BadInput(f"{part!r} in {text!r} is not a number.") from None
