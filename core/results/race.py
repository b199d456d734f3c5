"""A race of two runs: which lane is ahead and which came first, each on its own compute clock (design.md "Race").

Rounds alternate on the device, so wall time measures neither lane. ``Burst.ended_at_s`` does not advance while the
other lane computes; two lanes are compared at the same reading of their own clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.records import TERMINAL, RunStatus
from core.results.metrics import ratio
from core.results.traces import Burst

Phase = Literal["waiting", "running", "passed", "finished", "broken"]
"""waiting: a lane has no token yet · running: both decode, or one has finished and the other has computed for less
time · passed: one has finished, and the other has computed for at least as long · finished: both have finished ·
broken: a lane failed, was cancelled or was interrupted."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One run of a race. ``emitted``: its bursts so far, in order."""

    status: RunStatus
    emitted: Sequence[Burst]

    @property
    def own_s(self) -> float:
        """Seconds on the lane's own clock at its last burst, prompt included; 0 before the first burst."""
        return self.emitted[-1].ended_at_s if self.emitted else 0.0

    @property
    def tokens(self) -> int:
        """Number of tokens emitted so far."""
        return sum(len(burst.tokens) for burst in self.emitted)

    def tokens_by(self, seconds: float) -> int:
        """Number of tokens emitted by this reading of the lane's own clock."""
        count = bisect_right(self.emitted, seconds, key=lambda burst: burst.ended_at_s)
        return sum(len(burst.tokens) for burst in self.emitted[:count])


@dataclass(frozen=True, slots=True)
class Ranking:
    """Comparison of two lanes. ``at_s``: the reading of both clocks at which ``tokens`` are compared; ``ahead`` is 0,
    1 or None if level. ``first``: the lane that finished sooner on its own clock; ``longer``: how many times as long
    the other lane took, if both emitted equally many tokens."""

    phase: Phase
    at_s: float
    tokens: tuple[int, int]
    ahead: int | None
    first: int | None = None
    longer: float | None = None


def ranking(one: Lane, two: Lane) -> Ranking:
    """Compare the lanes at the latest reading that both clocks have reached."""
    lanes = (one, two)
    at_s = min(one.own_s, two.own_s)
    done = [lane.status == "done" for lane in lanes]
    if all(done):  # the lane that finished first keeps its tokens
        at_s = max(one.own_s, two.own_s)
    elif any(done) and lanes[done.index(False)].own_s >= lanes[done.index(True)].own_s:
        at_s = lanes[done.index(False)].own_s
    tokens = (one.tokens_by(at_s), two.tokens_by(at_s))
    ahead = None if tokens[0] == tokens[1] else int(tokens[1] > tokens[0])
    if any(lane.status in TERMINAL and lane.status != "done" for lane in lanes):
        return Ranking("broken", at_s, tokens, ahead)
    if not one.emitted or not two.emitted:
        return Ranking("waiting", at_s, tokens, ahead)
    if all(done):
        first = None if one.own_s == two.own_s else int(two.own_s < one.own_s)
        longer = None
        if first is not None and one.tokens == two.tokens:
            longer = ratio(lanes[1 - first].own_s, lanes[first].own_s)
        return Ranking("finished", at_s, tokens, ahead, first, longer)
    if any(done):
        ended, other = lanes[done.index(True)], lanes[done.index(False)]
        if other.own_s >= ended.own_s:
            return Ranking("passed", at_s, tokens, ahead, done.index(True))
    return Ranking("running", at_s, tokens, ahead)
