"""Confidence bands of observed shares."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

from core.errors import BadInput


def wilson(count: int, samples: int, confidence: float = 0.95, together: int = 1) -> tuple[float, float]:
    """Bounds of a share that was seen ``count`` times in ``samples`` (Wilson's score interval).

    ``together``: how many such intervals are to hold at once. Bonferroni over the cells of one multinomial makes it
    Goodman's simultaneous interval. Raises BadInput for counts or levels that make no sense.
    """
    if samples < 1 or not 0 <= count <= samples or not 0.0 < confidence < 1.0 or together < 1:
        raise BadInput(f"{count} of {samples} at confidence {confidence} for {together} shares is no observation.")
    z = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / (2.0 * together))
    share, extra = count / samples, z * z / samples
    middle = share + extra / 2.0
    half = z * sqrt(share * (1.0 - share) / samples + extra / samples / 4.0)
    low = 0.0 if count == 0 else max(0.0, (middle - half) / (1.0 + extra))  # exact at the ends, where floats aren't
    return low, 1.0 if count == samples else min(1.0, (middle + half) / (1.0 + extra))
