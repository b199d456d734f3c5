"""Numbers formatted for people. Formatting only: ``core`` computes every value."""

from __future__ import annotations

from datetime import UTC, datetime

from core.results.glossary import GLOSSARY, Metric
from core.results.metrics import ROUNDING

NOTHING = "–"
"""Shown for a value that does not exist (an empty denominator, an untested candidate)."""

_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def probability(value: float | None) -> str:
    """A probability with three decimals; a tiny probability keeps its magnitude, so that 0 means 0."""
    if value is None:
        return NOTHING
    if value == 0 or value == 1:
        return f"{value:.0f}"
    if value < 0.0005:
        return f"{value:.1e}"
    if value > 0.9995:
        return f"{value:.6f}"
    return f"{value:.3f}"


def rate(value: float | None) -> str:
    """A share in [0, 1] as a percentage."""
    return NOTHING if value is None else f"{value:.1%}".replace("%", " %")


def quantity(value: float | int | None, digits: int = 2) -> str:
    """A count (with thousands separators) or a mean (``digits`` decimals)."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def nats(value: float | None) -> str:
    """A divergence with three decimals; a tiny divergence keeps its magnitude, and rounding error is ``≈ 0``."""
    if value is None:
        return NOTHING
    if value < ROUNDING:
        return "0" if value == 0 else "≈ 0"
    return f"{value:.1e}" if value < 0.0005 else f"{value:,.3f}"


def seconds(value: float | None) -> str:
    """A duration in a suitable unit: ``830 µs``, ``41.2 ms``, ``3.21 s``, ``2 min 05 s``."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0 s"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60):02d} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60):02d} min"


def size(value: int | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NOTHING
    for unit, name in _BYTES:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value} B"


def parameters(value: int | None) -> str:
    """A model's number of parameters: ``134.5 M``, ``7.62 B``."""
    if value is None:
        return NOTHING
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if value >= unit:
            return f"{value / unit:.4g} {name}" if unit < 10**9 else f"{value / unit:.3g} {name}"
    return str(value)


def ratio(value: float | None) -> str:
    """A speed-up: ``1.42 ×``."""
    return NOTHING if value is None else f"{value:.2f} ×"


OWN_UNIT = frozenset({"s", "bytes", "×", "share", ""})
"""Units that a formatted value already includes."""


def metric(name: str, value: float | None) -> str:
    """A value of a metric of the glossary, formatted by the metric's unit."""
    unit = GLOSSARY[name].unit
    if unit == "s":
        return seconds(value)
    if unit == "bytes":
        return size(None if value is None else int(value))
    if unit == "×":
        return ratio(value)
    if unit == "share":
        return rate(value)
    if unit == "nats":
        return nats(value)
    return quantity(value, 1 if name == "tokens_per_second" else 2)


def unit_beside(metric: Metric) -> str:
    """The unit to write beside the metric's label; empty if value or label already names the unit."""
    return "" if metric.unit in OWN_UNIT or metric.unit in metric.label.lower() else metric.unit


def moment(value: datetime | None) -> str:
    """A stored instant in the machine's own time zone, to the second."""
    return NOTHING if value is None else aware(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def elapsed(start: datetime | None, end: datetime | None) -> str:
    """Wall time between two instants, or from ``start`` until now without an ``end``."""
    if start is None:
        return NOTHING
    return seconds(max(0.0, (aware(end or datetime.now(UTC)) - aware(start)).total_seconds()))


def aware(value: datetime) -> datetime:
    """The instant with a time zone; a naive instant is taken as UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)
