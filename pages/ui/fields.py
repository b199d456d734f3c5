"""Fields of the Live form, their limits read from the specifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from core.types import Spec
from pages.ui import form_values as fv

KEY = "live_"


def key(name: str) -> dict[str, Any]:
    """Key and persistence of the field ``name``."""
    return {"key": KEY + name, "persist_state": "session"}


def choice(label: str, options: dict[str, str], name: str) -> str | None:
    """One of a few options, side by side."""
    return st.segmented_control(label, list(options), format_func=options.__getitem__, required=True, **key(name))


def pair_of(left: Callable[[], Any], right: Callable[[], Any]) -> None:
    """Two narrow fields side by side."""
    one, two = st.columns(2, gap="small", wrap=False)
    with one:
        left()
    with two:
        right()


def whole(label: str, spec: type[Spec], field: str, help: str | None = None, name: str | None = None) -> None:
    """A whole number within the specification's limits; ``name``: the form's, where it is not the field's."""
    low, high = fv.bounds(spec, field)
    st.number_input(label, min_value=_int(low), max_value=_int(high), step=1, help=help, **key(name or field))


def number(
    label: str,
    spec: type[Spec],
    field: str,
    step: float,
    help: str | None = None,
    name: str | None = None,
    low: float | None = None,
) -> None:
    """A number within the specification's limits; ``low`` widens them for a value that stands for something else."""
    lowest, high = fv.bounds(spec, field)
    lowest = lowest if low is None else low
    st.number_input(label, min_value=lowest, max_value=high, step=step, format="%g", help=help, **key(name or field))


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
