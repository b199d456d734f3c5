"""A race in one sentence: who is ahead, who came first, each on its own clock."""

from __future__ import annotations

from core.results.race import Lane, Standing
from pages.ui.kit import numbers

LETTERS = ("A", "B")


def sentence(found: Standing, one: Lane, two: Lane) -> str:
    """What the standing means, in words that name the lanes A and B."""
    lanes = (one, two)
    match found.phase:
        case "waiting":
            return "Waiting for the first tokens of both lanes."
        case "broken":
            ended = [f"{LETTERS[i]} {_END[lane.status]}" for i, lane in enumerate(lanes) if lane.status in _END]
            return f"No winner: {' and '.join(ended)}. {_level(found)}"
        case "finished":
            return _finished(found, lanes)
        case "passed":
            assert found.first is not None
            other = 1 - found.first
            return (
                f"{LETTERS[found.first]} finished first on its own clock: {_tokens(lanes[found.first].tokens)} in "
                f"{numbers.seconds(lanes[found.first].own_s)}. {LETTERS[other]} has {_tokens(lanes[other].tokens)} "
                f"after {numbers.seconds(lanes[other].own_s)} and goes on."
            )
        case _:
            ended = [LETTERS[i] for i, lane in enumerate(lanes) if lane.status == "done"]
            return _level(found) + (f" {ended[0]} has finished; {_other(ended[0])} goes on." if ended else "")


def _finished(found: Standing, lanes: tuple[Lane, Lane]) -> str:
    if found.first is None:
        return f"Both finished after {numbers.seconds(lanes[0].own_s)} of their own compute."
    first, other = lanes[found.first], lanes[1 - found.first]
    said = (
        f"{LETTERS[found.first]} finished first: {_tokens(first.tokens)} in {numbers.seconds(first.own_s)} of its own "
        f"compute; {LETTERS[1 - found.first]} took {numbers.seconds(other.own_s)} for {_tokens(other.tokens)}"
    )
    if found.longer is None:
        return said + ". Their lengths differ, so compare tokens/s, not times."
    return said + f", {found.longer:.2f} times as long."


def _level(found: Standing) -> str:
    if found.at_s <= 0:
        return ""
    after = f"After {numbers.seconds(found.at_s)} of own compute"
    if found.ahead is None:
        return f"{after} both have {_tokens(found.tokens[0])}: level."
    ahead, behind = found.ahead, 1 - found.ahead
    return (
        f"{LETTERS[ahead]} is ahead. {after} it has {_tokens(found.tokens[ahead])}, "
        f"{LETTERS[behind]} {numbers.quantity(found.tokens[behind])}."
    )


def _tokens(count: int) -> str:
    return f"{numbers.quantity(count)} token{'' if count == 1 else 's'}"


def _other(letter: str) -> str:
    return LETTERS[1 - LETTERS.index(letter)]


_END = {"failed": "failed", "cancelled": "was stopped", "interrupted": "was interrupted"}
