"""Bursts, gaps and tokens over time, on rounds with exact moments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.results.metrics import summarise, token_gaps
from core.results.traces import Burst, Gap, bursts, gaps, stages_per_token, tokens_over_time
from tests.helpers import sample


def at(seconds: float, *sizes: int) -> list[Burst]:
    """Bursts of these sizes, ``seconds`` apart."""
    return [Burst(index, tuple(range(size)), ("x",) * size, seconds * (index + 1)) for index, size in enumerate(sizes)]


def test_a_gap_stands_before_every_burst_but_the_first():
    assert gaps(at(0.5, 3, 1, 2)) == [Gap(4, 1, 0.5), Gap(5, 2, 0.5)]
    assert gaps(at(0.5, 3)) == []
    assert gaps([]) == []


def test_the_gaps_are_those_of_the_metrics():
    rounds = [sample.chain(["accepted", "rejected"], 0), sample.plain(1), sample.chain(("accepted", "accepted"), 2)]
    assert [gap.gap_s for gap in gaps(bursts(rounds))] == [gap for gap in token_gaps(rounds) if gap > 0]


def test_a_round_that_committed_nothing_lengthens_the_gap_and_is_no_burst():
    empty = replace(sample.plain(1), committed=(), committed_text=(), source="none")
    emitted = bursts([sample.plain(0), empty, sample.plain(2)])
    assert [burst.index for burst in emitted] == [0, 2]
    assert gaps(emitted)[0].gap_s == pytest.approx(0.086)


def test_thinned_gaps_keep_the_longest_and_say_how_many_they_stand_for():
    emitted = at(1.0, *[1] * 101)
    emitted = [*emitted[:50], replace(emitted[50], ended_at_s=51.5), *emitted[51:]]
    thin = gaps(emitted, most=10)
    assert len(thin) == 10
    assert sum(gap.merged for gap in thin) == 100
    assert max(gap.gap_s for gap in thin) == 1.5
    assert next(gap.first for gap in thin if gap.gap_s == 1.5) == 51


def test_tokens_over_time_start_at_nothing_and_end_at_the_whole_output():
    curve = tokens_over_time(at(0.5, 3, 1, 2))
    assert curve.seconds == (0.0, 0.5, 1.0, 1.5)
    assert curve.tokens == (0, 3, 4, 6)
    assert tokens_over_time([]).tokens == (0,)


@pytest.mark.parametrize("count", [7, 100, 101, 3000])
def test_a_thinned_curve_keeps_its_end(count: int):
    curve = tokens_over_time(at(0.1, *[2] * count), most=10)
    assert curve.tokens[-1] == 2 * count
    assert curve.seconds[-1] == pytest.approx(0.1 * count)
    assert len(curve.tokens) <= 12


def test_stages_per_token_add_up_to_the_decode_time_per_token():
    rounds = [sample.chain(["accepted", "rejected"], 0), sample.plain(1)]
    summary = summarise(sample.started(), rounds, sample.ended(rounds))
    stages = stages_per_token(summary)
    assert stages["verify_s"] == pytest.approx(0.06 / 3)
    assert sum(value for value in stages.values() if value is not None) == pytest.approx(summary.decode_s / 3)


def test_without_tokens_there_is_no_time_per_token():
    summary = summarise(sample.started(), [], sample.ended([]))
    assert set(stages_per_token(summary).values()) == {None}
