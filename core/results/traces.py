"""What a run emitted and when: bursts of tokens, the gaps between them, tokens over time (metrics.md "token gaps").

Series are thinned here for drawing, never on the page: a run of thousands of rounds becomes a few hundred points,
always including its longest gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.records import Round, Summary
from core.results.metrics import ratio

MAX_POINTS = 400
"""Most points of one drawn series."""

STAGES = ("draft_s", "verify_s", "state_s", "other_s")
"""Stages of a round, in order."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Tokens committed by one round: their ids, the text that each completed, and the time in seconds since the
    request was accepted."""

    index: int
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    ended_at_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Wait before a burst. ``first``: number of the burst's first token, from 1; ``size``: its tokens, all emitted at
    once; ``gap_s``: seconds since the token before; ``merged``: number of bursts merged into this gap, the longest of
    theirs."""

    first: int
    size: int
    gap_s: float
    merged: int = 1


@dataclass(frozen=True, slots=True)
class Curve:
    """Tokens emitted by each moment: a step curve from (0 s, 0)."""

    seconds: tuple[float, ...]
    tokens: tuple[int, ...]


def bursts(rounds: Iterable[Round]) -> list[Burst]:
    """Bursts of ``rounds``, without rounds that committed nothing."""
    return [Burst(one.index, one.committed, one.committed_text, one.ended_at_s) for one in rounds if one.committed]


def gaps(emitted: Sequence[Burst], most: int = MAX_POINTS) -> list[Gap]:
    """Gaps before every burst but the first (whose wait is the time to first token), at most ``most``: neighbouring
    gaps are merged into the longest of them."""
    found: list[Gap] = []
    done = 0
    for place, burst in enumerate(emitted):
        if place:
            gap_s = burst.ended_at_s - emitted[place - 1].ended_at_s
            found.append(Gap(done + 1, len(burst.tokens), gap_s))
        done += len(burst.tokens)
    width = _width(len(found), most)
    if width == 1:
        return found
    groups = [found[start : start + width] for start in range(0, len(found), width)]
    longest = [(max(group, key=lambda gap: gap.gap_s), len(group)) for group in groups]
    return [Gap(gap.first, gap.size, gap.gap_s, merged) for gap, merged in longest]


def tokens_over_time(emitted: Sequence[Burst], most: int = MAX_POINTS) -> Curve:
    """Number of tokens emitted by each moment, thinned to about ``most`` points; the last point is always kept."""
    seconds, tokens, done = [0.0], [0], 0
    width = _width(len(emitted), most)
    for place, burst in enumerate(emitted):
        done += len(burst.tokens)
        if place % width == 0 or place == len(emitted) - 1:
            seconds.append(burst.ended_at_s)
            tokens.append(done)
    return Curve(tuple(seconds), tuple(tokens))


def stages_per_token(summary: Summary) -> dict[str, float | None]:
    """Seconds of each stage per committed token, which add up to decode time per token. None without tokens."""
    return {name: ratio(getattr(summary, name), summary.output_tokens) for name in STAGES}


def _width(count: int, most: int) -> int:
    return max(1, -(-count // most))
