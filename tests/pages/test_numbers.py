"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pages.ui.kit import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (1.0, "1"), (0.8125, "0.812"), (1e-7, "1.0e-07"), (0.99999, "0.999990")],
)
def test_a_probability_keeps_small_values_apart_from_zero_and_large_ones_apart_from_one(
    value: float | None, text: str
) -> None:
    assert numbers.probability(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (8.3e-4, "830 µs"),
        (0.0412, "41.2 ms"),
        (3.214, "3.21 s"),
        (125.0, "2 min 05 s"),
        (3900.0, "1 h 05 min"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(value: float | None, text: str) -> None:
    assert numbers.seconds(value) == text


def test_counts_means_rates_ratios_and_sizes_have_their_units() -> None:
    assert numbers.quantity(12345) == "12,345"
    assert numbers.quantity(2.5) == "2.50"
    assert numbers.rate(0.6667) == "66.7 %"
    assert numbers.ratio(1.5) == "1.50 ×"
    assert numbers.size(300 * 2**20) == "300 MiB"
    assert numbers.size(None) == numbers.ratio(None) == numbers.rate(None) == "–"


def test_elapsed_time_runs_until_the_end_and_never_backwards() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    assert numbers.elapsed(start, start + timedelta(seconds=5)) == "5 s"
    assert numbers.elapsed(start, start - timedelta(seconds=5)) == "0 s"
    assert numbers.elapsed(None, None) == "–"
