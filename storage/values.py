"""Conversion of Python values to what the database can store, and back.

DuckDB refuses or misorders three kinds of values, which are converted: numpy scalars (to plain Python), NaN and
infinities (to NULL, as NaN sorts above infinity and spoils avg and max) and lone surrogates (to U+FFFD).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import SupportsFloat, SupportsIndex, SupportsInt

_SURROGATE = re.compile("[\ud800-\udfff]")

REPLACEMENT = "\ufffd"
"""Replaces each surrogate code point; the token's id beside the text stays exact."""


def text(value: str) -> str:
    """``value`` with every surrogate code point replaced by U+FFFD, since UTF-8 cannot encode them."""
    return value if value.isascii() else _SURROGATE.sub(REPLACEMENT, value)


def text_or_none(value: str | None) -> str | None:
    """The same as :func:`text`; None for None."""
    return None if value is None else text(value)


def integer(value: SupportsInt | SupportsIndex) -> int:
    """A plain int of any whole number, numpy's included."""
    return int(value)


def number(value: SupportsFloat | SupportsIndex | None) -> float | None:
    """A plain float; None for None, NaN and the infinities."""
    if value is None:
        return None
    plain = float(value)
    return plain if math.isfinite(plain) else None


def required(value: float | None) -> float:
    """A stored number whose field cannot be None: NaN for NULL, which stands for a number that was not finite."""
    return math.nan if value is None else value


def naive_utc(at: datetime) -> datetime:
    """The moment in UTC without a zone, as TIMESTAMP columns store it; a naive argument is taken as local time."""
    return at.astimezone(UTC).replace(tzinfo=None)


def aware(at: datetime | None) -> datetime | None:
    """A stored moment with its zone, UTC."""
    return None if at is None else at.replace(tzinfo=UTC)


def ids_json(tokens: Iterable[SupportsInt]) -> str:
    """Token ids as a JSON array."""
    return json.dumps([int(token) for token in tokens])


def texts_json(texts: Sequence[str]) -> str:
    """Texts as a JSON array, not escaped to ASCII."""
    return json.dumps([text(item) for item in texts], ensure_ascii=False)
