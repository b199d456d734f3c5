"""Form fields whose limits come from ``core.types``, each under a key of its form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from annotated_types import Ge, Le

from core.types import Spec


def key(prefix: str, name: str) -> dict[str, Any]:
    """A field's key; its value is kept when another page is opened."""
    return {"key": prefix + name, "persist_state": "session"}


def choice(label: str, options: dict[str, str], prefix: str, name: str) -> str | None:
    """A choice of one among a few options that are all visible."""
    return st.segmented_control(
        label, list(options), format_func=options.__getitem__, required=True, **key(prefix, name)
    )


def pair_of(left: Callable[[], Any], right: Callable[[], Any]) -> None:
    """Two narrow fields side by side."""
    one, two = st.columns(2, gap="small", wrap=False)
    with one:
        left()
    with two:
        right()


def whole(
    label: str, spec: type[Spec], field: str, prefix: str, help: str | None = None, name: str | None = None
) -> None:
    """A whole number within the specification's limits; ``name``: the form's, where it is not the field's."""
    low, high = bounds(spec, field)
    limits = {"min_value": _int(low), "max_value": _int(high)}
    st.number_input(label, **limits, step=1, help=help, **key(prefix, name or field))


def number(
    label: str,
    spec: type[Spec],
    field: str,
    step: float,
    prefix: str,
    help: str | None = None,
    name: str | None = None,
    low: float | None = None,
) -> None:
    """A number within the specification's limits; ``low`` widens them for a value with a meaning of its own."""
    lowest, high = bounds(spec, field)
    limits = {"min_value": lowest if low is None else low, "max_value": high}
    st.number_input(label, **limits, step=step, format="%g", help=help, **key(prefix, name or field))


def bounds(spec: type[Spec], field: str) -> tuple[float | None, float | None]:
    """The inclusive limits that the specification declares for a field; exclusive ones are left to validation."""
    low = high = None
    for rule in spec.model_fields[field].metadata:
        if isinstance(rule, Ge):
            low = rule.ge
        elif isinstance(rule, Le):
            high = rule.le
    return low, high  # type: ignore[return-value]


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
