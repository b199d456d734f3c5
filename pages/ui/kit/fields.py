"""Form fields with the limits of ``core.types``, each with a key of its form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from annotated_types import Ge, Le

from core.types import Spec


def key(prefix: str, name: str) -> dict[str, Any]:
    """Key of a field, as keyword arguments that also keep the field's value when another page is opened."""
    return {"key": prefix + name, "persist_state": "session"}


def choice(label: str, options: dict[str, str], prefix: str, name: str) -> str | None:
    """Draw a choice of one among a few options, all visible."""
    return st.segmented_control(
        label, list(options), format_func=options.__getitem__, required=True, **key(prefix, name)
    )


def pair_of(left: Callable[[], Any], right: Callable[[], Any]) -> None:
    """Draw two narrow fields side by side."""
    one, two = st.columns(2, gap="small", wrap=False)
    with one:
        left()
    with two:
        right()


def whole(
    label: str, spec: type[Spec], field: str, prefix: str, help: str | None = None, name: str | None = None
) -> None:
    """Draw a field for a whole number within the specification's limits; ``name``: its name in the form, if not
    ``field``."""
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
    """Draw a field for a number within the specification's limits; ``low`` extends them for a special value."""
    lowest, high = bounds(spec, field)
    limits = {"min_value": lowest if low is None else low, "max_value": high}
    st.number_input(label, **limits, step=step, format="%g", help=help, **key(prefix, name or field))


def bounds(spec: type[Spec], field: str) -> tuple[float | None, float | None]:
    """Inclusive limits that the specification declares for a field; exclusive limits are left to validation."""
    low = high = None
    for rule in spec.model_fields[field].metadata:
        if isinstance(rule, Ge):
            low = rule.ge
        elif isinstance(rule, Le):
            high = rule.le
    return low, high  # type: ignore[return-value]


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
