"""What a run emitted and when: bursts of tokens, the gaps between them, tokens over time (metrics.md "token gaps").

Series are thinned here for drawing, never on the page: a run of thousands of rounds is a few hundred points, and its
longest gap is always one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.records import Round, Summary
from core.results.metrics import ratio

MAX_POINTS = 400
"""Points of one drawn series."""

STAGES = ("draft_s", "verify_s", "state_s", "other_s")
"""A round's stages, in the order in which they happen."""


@dataclass(frozen=True, slots=True)
class Burst:
    """What one round committed: token ids, the text each completed, and when, in seconds since the request was
    accepted."""

    index: int
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    ended_at_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """The wait before a burst. ``first``: number of its first token, from 1; ``size``: its tokens, which all came at
    once; ``gap_s``: seconds since the token before; ``merged``: number of bursts merged into this one, which
    keeps their longest gap."""

    first: int
    size: int
    gap_s: float
    merged: int = 1


@dataclass(frozen=True, slots=True)
class Curve:
    """Tokens emitted by each moment, a stair from (0 s, 0)."""

    seconds: tuple[float, ...]
    tokens: tuple[int, ...]


def bursts(rounds: Iterable[Round]) -> list[Burst]:
    """The rounds as they were emitted; those that committed nothing are left out."""
    return [Burst(one.index, one.committed, one.committed_text, one.ended_at_s) for one in rounds if one.committed]


def gaps(emitted: Sequence[Burst], most: int = MAX_POINTS) -> list[Gap]:
    """The gap before every burst but the first (that wait is the time to first token), at most ``most`` of them:
    neighbours are merged into the one with the longest gap."""
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
    """How many tokens were out by when; thinned to about ``most`` points, the last always kept."""
    seconds, tokens, done = [0.0], [0], 0
    width = _width(len(emitted), most)
    for place, burst in enumerate(emitted):
        done += len(burst.tokens)
        if place % width == 0 or place == len(emitted) - 1:
            seconds.append(burst.ended_at_s)
            tokens.append(done)
    return Curve(tuple(seconds), tuple(tokens))


def stages_per_token(summary: Summary) -> dict[str, float | None]:
    """Seconds of each stage per committed token; they add up to decode time per token. None without tokens."""
    return {name: ratio(getattr(summary, name), summary.output_tokens) for name in STAGES}


def _width(count: int, most: int) -> int:
    return max(1, -(-count // most))
