"""Base of all specifications, and their validation errors as one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import BadInput

T = TypeVar("T")


class Spec(BaseModel):
    """Base of all specifications: immutable; unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def sentence(error: ValidationError) -> str:
    """Pydantic's first error as one sentence with the field and the value."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{message}."
    field = " ".join(str(part) for part in first["loc"][-2:] if not isinstance(part, int)) or "value"
    if first["type"] == "missing":
        return f"{field} is missing."
    shown = repr(first.get("input"))
    return f"{field} is {shown if len(shown) <= 60 else shown[:57] + '…'}: {message[0].lower()}{message[1:]}."


def valid(make: Callable[..., T], **fields: Any) -> T:
    """Return ``make(**fields)``. Raises :class:`BadInput` in place of pydantic's ValidationError."""
    try:
        return make(**fields)
    except ValidationError as error:
        raise BadInput(sentence(error)) from error
