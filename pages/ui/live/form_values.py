"""Conversion of the Live form's fields, as plain values, to and from a :class:`~core.types.RunSpec`. No Streamlit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from core.errors import BadInput
from core.grammar import format_allowed, parse_allowed
from core.rules import catalogue
from core.types import (
    ChainShape,
    EarlyExitDrafter,
    Lossless,
    NoDrafter,
    NoShape,
    PairSpec,
    PromptLookupDrafter,
    Request,
    RunSpec,
    Sampling,
    ShapeSpec,
    SmallModelDrafter,
    Stops,
    TreeShape,
    sentence,
)
from pages.ui.live.examples import EXAMPLES

Values = dict[str, Any]

DRAFTERS = {
    "prompt_lookup": "Prompt lookup",
    "early_exit": "Early exit",
    "model": "Draft model",
    "none": "None (plain decoding)",
}
SHAPES = {"chain": "Chain", "tree": "Tree"}
SAMPLING = tuple(name for name in Sampling.model_fields if name != "allowed")

DEFAULTS: Values = {
    "pair": "embedded",
    "prompt": EXAMPLES[0].prompt,
    "chat": True,
    "drafter": "prompt_lookup",
    "min_ngram": 1,
    "max_ngram": 3,
    "layers": 26,
    "shape": "chain",
    "gamma": 8,
    "steps": 3,
    "topk": 2,
    "nodes": 6,
    **catalogue.DEFAULTS,
    **Sampling(temperature=0.0).model_dump(),
    "allowed": "",
    "measure_distortion": True,
    "max_new_tokens": EXAMPLES[0].max_new_tokens,
    "stop_strings": "",
    "seed": "0",
    "precision": "auto",
    "device": "auto",
}


def spec_of(values: Mapping[str, Any]) -> RunSpec:
    """The run that these fields request.

    Raises:
        BadInput: with a sentence naming the first value that cannot be used.
    """
    v = dict(DEFAULTS) | dict(values)
    if not (v["prompt"] or "").strip():
        raise BadInput("The prompt is empty: type something to decode.")
    try:
        plain = v["drafter"] == "none"
        return RunSpec(
            pair=PairSpec(name=v["pair"] or "", precision=v["precision"], device=v["device"]),
            request=Request(
                prompt=v["prompt"] or "",
                chat=v["chat"],
                sampling=Sampling(**{name: v[name] for name in SAMPLING}, allowed=parse_allowed(v["allowed"] or "")),
                stops=Stops(max_new_tokens=v["max_new_tokens"], stop_strings=stop_strings(v["stop_strings"] or "")),
                drafter=_drafter(v),
                shape=NoShape() if plain else _shape(v),
                rule=Lossless() if plain else catalogue.rule_of(v),
                seed=v["seed"],
                measure_distortion=v["measure_distortion"],
            ),
        )
    except ValidationError as error:
        raise BadInput(_say(error)) from error


def shape_of(values: Mapping[str, Any]) -> ShapeSpec:
    """The shape that these fields request. Raises BadInput as :func:`spec_of` does."""
    try:
        return _shape(dict(DEFAULTS) | dict(values))
    except ValidationError as error:
        raise BadInput(_say(error)) from error


def values_of(spec: RunSpec) -> Values:
    """The fields that request this run; ``spec_of(values_of(spec)) == spec``."""
    request = spec.request
    values: Values = {
        "pair": spec.pair.name,
        "precision": spec.pair.precision,
        "device": spec.pair.device,
        "prompt": request.prompt,
        "chat": request.chat,
        "drafter": request.drafter.kind,
        "max_new_tokens": request.stops.max_new_tokens,
        "stop_strings": "\n".join(show_stop(text) for text in request.stops.stop_strings),
        "seed": str(request.seed),
        **catalogue.rule_values(request.rule),
        **request.sampling.model_dump(),
        "allowed": format_allowed(request.sampling.allowed),
        "measure_distortion": request.measure_distortion,
    }
    if not isinstance(request.shape, NoShape):
        values["shape"] = request.shape.kind
    for part in (request.drafter, request.shape):
        values |= {name: value for name, value in part.model_dump().items() if name != "kind"}
    return values


def stop_strings(text: str) -> tuple[str, ...]:
    r"""Stop strings, one per line; ``\n``, ``\t`` and ``\\`` are read as line break, tab and backslash."""
    return tuple(_unescape(line) for line in text.split("\n") if line)


def show_stop(text: str) -> str:
    """A stop string on one line, as :func:`stop_strings` reads it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescape(line: str) -> str:
    out, rest = "", iter(line)
    for char in rest:
        if char != "\\":
            out += char
            continue
        after = next(rest, "")
        out += {"n": "\n", "t": "\t", "\\": "\\", "": "\\"}.get(after, "\\" + after)
    return out


def _drafter(v: Values) -> Any:
    match v["drafter"]:
        case "prompt_lookup":
            return PromptLookupDrafter(min_ngram=v["min_ngram"], max_ngram=v["max_ngram"])
        case "early_exit":
            return EarlyExitDrafter(layers=v["layers"])
        case "model":
            return SmallModelDrafter()
        case _:
            return NoDrafter()


def _shape(v: Values) -> Any:
    if v["shape"] == "tree":
        return TreeShape(steps=v["steps"], topk=v["topk"], nodes=v["nodes"])
    return ChainShape(gamma=v["gamma"])


_WORDS = {one.field: one.symbol for entry in catalogue.RULES for one in entry.parameters if one.symbol} | {
    "prompt": "The prompt",
    "name": "The pair",
    "max_new_tokens": "Max new tokens",
    "stop_strings": "A stop string",
    "min_ngram": "Shortest n-gram",
    "max_ngram": "Longest n-gram",
    "gamma": "γ",
    "top_k": "Top-k",
    "top_p": "Top-p",
    "min_p": "Min-p",
    "repetition_penalty": "The repetition penalty",
}


def _say(error: ValidationError) -> str:
    """The grammar's sentence, with the field's name as in the form."""
    text = sentence(error)
    field, _, rest = text.partition(" ")
    if not rest.startswith("is "):
        return text[0].upper() + text[1:] if text[1].isalpha() else f"The shape {text}"  # s3_k2 stays s3_k2
    return f"{_WORDS.get(field, field.replace('_', ' ').capitalize())} {rest}"
