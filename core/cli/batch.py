"""Requests of a batch file: JSON lines whose fields go over those that the options gave, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import BadInput
from core.grammar import parse_drafter, parse_rule, parse_shape
from core.spec import sentence
from core.streams import decoded
from core.types import NoDrafter, NoShape, Request

_TEXTS = {"drafter": parse_drafter, "shape": parse_shape, "rule": parse_rule}
"""Fields that are written as on the command line."""

_SHORT = {"max_new_tokens": "stops", "stop_strings": "stops"}
"""Fields that may stand without the group that they belong to."""


def read_batch(file: Path, options: Request) -> list[Request]:
    """One request a line; what a line leaves out is as in ``options``. Raises BadInput with the line's number."""
    try:
        text = decoded(file.read_bytes(), f"the batch file {file}")
    except OSError as error:
        raise BadInput(f"the batch file {file} can't be read: {error.strerror or error}.") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise BadInput(f"the batch file {file} has no requests: write one JSON object a line, with a prompt.")
    return [_request(line, number, options) for number, line in lines]


def _request(line: str, number: int, options: Request) -> Request:
    try:
        own = json.loads(line, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise BadInput(f"line {number} of the batch is no JSON object: {error.msg}.") from error
    except BadInput as error:
        raise BadInput(f"line {number} of the batch: {error}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"line {number} of the batch has a number too long or brackets too deep to read.") from None
    if not isinstance(own, dict):
        raise BadInput(f"line {number} of the batch is no JSON object.")
    try:
        return _merged(own, options)
    except BadInput as error:
        raise BadInput(f"line {number} of the batch: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different. Raises BadInput for a key that is given twice."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise BadInput(f"{name} is given twice: keep one of the two.")
        made[name] = value
    return made


def _merged(own: dict[str, Any], options: Request) -> Request:
    if "prompt" not in own:
        raise BadInput("prompt is missing.")
    fields = options.model_dump(mode="json")
    own = dict(own)
    for name, group in _SHORT.items():
        if name in own:
            inner = own.setdefault(group, {})
            if not isinstance(inner, dict):
                raise BadInput(f"{group} is {inner!r}: write it as an object.")
            if name in inner:
                raise BadInput(f"{name} is given twice, alone and in {group}: keep one of the two.")
            own[group] = {**inner, name: own.pop(name)}
    for name, value in own.items():
        if name in _TEXTS:
            if not isinstance(value, str):
                raise BadInput(f"{name} is {value!r}: write it as text, as on the command line.")
            fields[name] = _TEXTS[name](value).model_dump(mode="json")
        elif isinstance(value, dict) and isinstance(fields.get(name), dict):
            fields[name] = fields[name] | value
        else:
            fields[name] = value
    if own.get("shape") == "none" and "drafter" not in own:
        fields["drafter"] = NoDrafter().model_dump(mode="json")
    if own.get("drafter") == "none" and "shape" not in own:
        fields["shape"] = NoShape().model_dump(mode="json")
    try:
        return Request.model_validate_json(json.dumps(fields), strict=True)  # JSON: true is no number, 1 is no text
    except ValidationError as error:
        raise BadInput(sentence(error)) from error
