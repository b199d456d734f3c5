"""Who is ahead in a race: lanes are compared at one reading of their own clocks, whatever the wall says."""

from __future__ import annotations

from core.records import RunStatus
from core.results.race import Lane, Ranking, ranking
from core.results.traces import Burst


def lane(every_s: float, tokens: int, bursts: int, status: RunStatus = "running") -> Lane:
    """``bursts`` bursts of ``tokens`` tokens, one each ``every_s`` seconds of its own compute."""
    return Lane(status, [Burst(i, (7,) * tokens, ("x",) * tokens, every_s * (i + 1)) for i in range(bursts)])


def test_before_both_have_a_token_they_wait() -> None:
    assert ranking(lane(0.5, 1, 3), lane(0.5, 1, 0)).phase == "waiting"
    assert ranking(lane(0.5, 1, 0, "queued"), lane(0.5, 1, 0, "queued")) == Ranking("waiting", 0.0, (0, 0), None)


def test_two_that_go_on_are_compared_at_the_latest_moment_that_both_clocks_have_reached() -> None:
    # equally many rounds: A is at 2 s, B at 1 s, when A had 4 tokens
    assert ranking(lane(0.5, 2, 4), lane(0.25, 1, 4)).tokens == (4, 4)
    assert ranking(lane(0.5, 2, 4), lane(0.25, 2, 4)) == Ranking("running", 1.0, (4, 8), 1)
    assert ranking(lane(0.25, 2, 4), lane(0.5, 2, 4)) == Ranking("running", 1.0, (8, 4), 0)
    assert ranking(lane(0.5, 1, 4), lane(0.5, 1, 4)).ahead is None


def test_one_that_ended_has_come_first_once_the_other_has_computed_for_longer() -> None:
    ended = lane(0.25, 2, 4, "done")
    assert ranking(ended, lane(0.5, 2, 1)) == Ranking("running", 0.5, (4, 2), 0)
    assert ranking(lane(0.5, 2, 1), ended).ahead == 1
    assert ranking(ended, lane(0.5, 2, 3)) == Ranking("passed", 1.5, (8, 6), 0, first=0)
    assert ranking(lane(0.5, 2, 3), ended) == Ranking("passed", 1.5, (6, 8), 1, first=1)


def test_of_two_that_ended_the_sooner_on_its_own_clock_came_first() -> None:
    assert ranking(lane(0.25, 2, 4, "done"), lane(0.5, 2, 4, "done")) == Ranking("finished", 2.0, (8, 8), None, 0, 2.0)
    assert ranking(lane(0.5, 2, 4, "done"), lane(0.25, 2, 4, "done")).first == 1
    assert ranking(lane(0.5, 2, 4, "done"), lane(0.5, 2, 4, "done")).first is None


def test_outputs_of_different_length_give_no_ratio_of_times() -> None:
    found = ranking(lane(0.25, 2, 4, "done"), lane(0.5, 2, 6, "done"))
    assert (found.first, found.longer, found.tokens) == (0, None, (8, 12))


def test_a_lane_that_was_stopped_or_broke_leaves_no_winner() -> None:
    for status in ("cancelled", "failed", "interrupted"):
        found = ranking(lane(0.25, 2, 4, "done"), lane(0.5, 2, 1, status))
        assert (found.phase, found.first) == ("broken", None)
