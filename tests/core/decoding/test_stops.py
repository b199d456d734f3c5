"""When a run stops and what a stop cuts: alone, and through the engine whatever the grouping into rounds."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.decoding.engine import generate
from core.decoding.stops import StopWatch
from core.grammar import parse_drafter, parse_shape
from core.records import Ended, Round, Started, StopReason
from core.types import Request, Sampling, Stops
from tests.helpers.fakes import FakePair, FakeText, Table, fake_pair

VOCABULARY: tuple[str | bytes, ...] = ("a", "b", "ab", "ba", "aab", b"\xf0\x9f", b"\x98\x80", b"\xc3", "END", "")
EOS = 9
GRIN, GRIN_REST, HALF_E, A, B, AB, AAB, END = 5, 6, 7, 0, 1, 2, 4, 8


def watch(stops: Sequence[str] = (), room: int = 99, reason: StopReason = "max_new_tokens") -> StopWatch:
    return StopWatch(FakeText(VOCABULARY, frozenset({EOS})).stream(), frozenset({EOS}), stops, room, reason)


def after(tokens: Sequence[int], stops: Sequence[str] = (), room: int = 99) -> StopWatch:
    """A watch that took ``tokens`` until it stopped."""
    one = watch(stops, room)
    for token in tokens:
        one.add(token)
        if one.reason:
            break
    return one


# -- the cut --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "stops", "kept", "text"),
    [
        ([A, B, A, A], ("ba",), [A], "a"),
        ([A, AB, A], ("ba",), [A, AB], "aa"),
        ([A, END, A], ("END",), [A], "a"),
        ([A, END, A], ("N",), [A, END], "aE"),
        ([END], ("END",), [], ""),
        ([B, A, B, A, A], ("aa", "aba"), [B], "b"),
        ([B, A, A, A], ("aba", "aa"), [B], "b"),
        ([A, AAB], ("ab", "aab"), [A], "a"),
        ([A, GRIN, GRIN_REST, B], ("\N{GRINNING FACE}",), [A], "a"),
        ([A, GRIN, GRIN_REST, B], ("b",), [A, GRIN, GRIN_REST], "a\N{GRINNING FACE}"),
        ([A, GRIN, GRIN_REST, B, A], ("\N{GRINNING FACE}b",), [A], "a"),
        ([HALF_E, A, B], ("\ufffda",), [], ""),
        ([HALF_E, AB, B], ("b",), [HALF_E, AB], "\ufffda"),
    ],
    ids=[
        "across two tokens, at the first one's beginning",
        "inside a token and across its end: text before it keeps the token",
        "a whole token",
        "in the middle of one token",
        "the very first token",
        "the stop string that is complete first decides",
        "two stop strings, the second complete first",
        "two stop strings complete at once: the earlier beginning decides",
        "a split character is the stop string: both its tokens go",
        "a split character before the stop string stays",
        "a stop string that begins with a split character",
        "a broken character is text too",
        "a broken character and text share a token's piece",
    ],
)
def test_a_stop_string_cuts_text_and_tokens_where_it_begins(tokens, stops, kept, text):
    one = after(tokens, stops)
    assert (one.reason, one.tokens, one.text) == ("stop_string", kept, text)
    assert "".join(one.pieces) == text
    assert len(one.pieces) == len(kept)


def test_an_end_token_stays_in_the_output_without_text():
    one = after([A, EOS, B])
    assert (one.reason, one.tokens, one.text, one.pieces) == ("eos", [A, EOS], "a", ["a", ""])


def test_a_limit_ends_the_run_with_the_reason_it_was_given():
    assert after([A, B, A], room=2).reason == "max_new_tokens"
    one = watch(room=1, reason="context_end")
    one.add(A)
    assert (one.reason, one.tokens) == ("context_end", [A])


def test_a_stop_string_in_the_last_token_that_fits_is_a_stop_string():
    assert after([A, B], ("b",), room=2).reason == "stop_string"


def test_an_end_token_at_the_limit_is_an_end_token():
    assert after([A, EOS], room=2).reason == "eos"


@pytest.mark.parametrize(("tokens", "room"), [([A, GRIN, EOS], 99), ([A, GRIN], 2)])
def test_half_a_character_at_the_end_becomes_a_replacement_character(tokens, room):
    one = after(tokens, room=room)
    assert one.text == "a\ufffd"
    assert "".join(one.pieces) == one.text


# -- what is not yet clear ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "stops", "safe"),
    [
        ([A, A, B], (), 3),
        ([A, A, B], ("xyz",), 3),
        ([A, A, B], ("bb",), 2),
        ([A, B, A], ("abab",), 0),
        ([A, B, AB], ("bb",), 2),
        ([A, B, GRIN], ("xyz",), 2),
        ([A, B, GRIN], (), 3),
        ([B, END], ("D!", "Dx"), 1),
        ([A, A, B], ("b",), 2),
    ],
    ids=[
        "no stop strings: all is clear",
        "nothing begins a stop string",
        "the last token may begin one",
        "all may begin one",
        "the end of a token may begin one: the whole token waits",
        "half a character may turn out to begin one",
        "half a character is clear without stop strings",
        "of two the longest overlap counts",
        "a stop string of one character is found or not, never begun",
    ],
)
def test_tokens_wait_only_while_they_may_still_be_cut(tokens, stops, safe):
    one = watch(stops)
    for token in tokens:
        one.add(token)
    if one.reason is None:
        assert one.undecided_from() == safe
    else:
        assert len(one.tokens) == safe


# -- through the engine ---------------------------------------------------------------------------------------------


def script(output: Sequence[int], prompt: int, vocab: int, wrong_at: frozenset[int] = frozenset()) -> Table:
    """A model sure to emit ``output`` after the prompt, but off by one token at the places ``wrong_at``."""

    def table(prefix: tuple[int, ...]) -> list[float]:
        place = len(prefix) - prompt
        token = output[place] if 0 <= place < len(output) else 0
        return [float(i == (token + (place in wrong_at)) % vocab) for i in range(vocab)]

    return table


def scripted_pair(output: Sequence[int], wrong_at: frozenset[int] = frozenset(), context: int = 4096) -> FakePair:
    vocab = len(VOCABULARY)
    return fake_pair(
        script(output, 1, vocab),
        script(output, 1, vocab, wrong_at),
        vocabulary=VOCABULARY,
        eos=[EOS],
        context=context,
    )


def decode(pair: FakePair, drafter: str, shape: str, stops: Stops) -> tuple[list[Round], Ended]:
    """A greedy run. Asserts on the way that shown text and tokens are never taken back."""
    request = Request(
        prompt="a",
        sampling=Sampling(temperature=0.0),
        stops=stops,
        drafter=parse_drafter(drafter),
        shape=parse_shape(shape),
    )
    rounds: list[Round] = []
    events: list[Any] = list(generate([request], pair))  # type: ignore[arg-type]
    for event in events:
        if isinstance(event, Round):
            rounds.append(event)
    ended = events[-1]
    assert isinstance(events[0], Started)
    assert isinstance(ended, Ended)
    assert [one.index for one in rounds] == list(range(len(rounds)))
    assert "".join(piece for one in rounds for piece in one.committed_text) == ended.text
    for one in rounds:
        assert len(one.committed) == len(one.committed_text) == one.accepted + (one.source != "none")
        assert one.drafted == sum(one.count(fate) for fate in ("accepted", "rejected", "unreached", "cut"))
    return rounds, ended


def committed(rounds: Sequence[Round]) -> list[int]:
    return [token for one in rounds for token in one.committed]


def expected(output: Sequence[int], stops: Stops, room: int) -> tuple[str, list[int], str]:
    """design.md and the issue, token by token over whole texts: reason, tokens and text of the run."""
    output = [*output, *([0] * 200)]

    def text(count: int, final: bool = False) -> str:
        raw = (VOCABULARY[token] for token in output[:count])
        joined = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in raw)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(joined, final)

    for count in range(1, room + 1):
        if output[count - 1] == EOS:
            return "eos", output[:count], text(count, final=True)
        begins = [found for stop in stops.stop_strings if (found := text(count).find(stop)) >= 0]
        if begins:
            start = min(begins)
            kept = next(k for k in range(count + 1) if len(text(k)) >= start)
            return "stop_string", output[:kept], text(count)[:start]
    limit = "max_new_tokens" if room == stops.max_new_tokens else "context_end"
    return limit, output[:room], text(room, final=True)


DRAFTERS = [
    ("none", "none"),
    ("model", "chain:1"),
    ("model", "chain:4"),
    ("model", "s3_k2_d6"),
    ("prompt_lookup", "chain:3"),
    ("prompt_lookup", "s2_k2_d5"),
]


@settings(max_examples=60, deadline=None)
@given(
    output=st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=14),
    wrong_at=st.frozensets(st.integers(0, 14), max_size=5),
    stop_strings=st.lists(
        st.one_of(
            st.text("ab", min_size=1, max_size=4),
            st.sampled_from(["END", "N", "aE", "\N{GRINNING FACE}", "a\N{GRINNING FACE}b", "\ufffd", "Da"]),
        ),
        max_size=3,
    ),
    most=st.integers(1, 16),
    context=st.integers(3, 20),
)
def test_the_grouping_into_rounds_changes_neither_tokens_nor_text_nor_reason(
    output, wrong_at, stop_strings, most, context
):
    stops = Stops(max_new_tokens=most, stop_strings=tuple(stop_strings))
    reason, tokens, text = expected(output, stops, min(most, context - 1))
    for drafter, shape in DRAFTERS:
        rounds, ended = decode(scripted_pair(output, wrong_at, context), drafter, shape, stops)
        assert (ended.stop_reason, committed(rounds), ended.text) == (reason, tokens, text), (drafter, shape)


@pytest.mark.parametrize("place", range(5))
def test_an_end_token_at_each_place_of_a_draft_cuts_what_was_accepted_after_it(place):
    output = [A, B, A, B, A, B]
    output[place] = EOS
    rounds, ended = decode(scripted_pair(output), "model", "chain:4", Stops(max_new_tokens=99))
    (one,) = rounds
    assert ended.stop_reason == "eos"
    assert list(one.committed) == output[: place + 1]
    assert (one.accepted, one.count("cut")) == (min(place + 1, 4), max(0, 3 - place))
    assert one.source == ("bonus" if place == 4 else "none")


def test_a_stop_string_across_two_rounds_cuts_the_earlier_round_as_well():
    """Rounds of two: (a END) (a …). "Da" begins in the first round and is complete in the second."""
    rounds, ended = decode(
        scripted_pair([A, END, A, B, B]), "model", "chain:1", Stops(max_new_tokens=99, stop_strings=("NDa",))
    )
    assert ended.text == "aE"
    assert [one.committed for one in rounds] == [(A, END), ()]
    assert [one.committed_text for one in rounds] == [("a", "E"), ()]
    assert [one.source for one in rounds] == ["bonus", "none"]
    assert rounds[1].count("cut") == 1


def test_a_round_is_held_back_until_it_is_clear_that_it_stays():
    """The b of round 1 may begin the stop string; only the END of round 3 settles that it does not."""
    stops = Stops(max_new_tokens=9, stop_strings=("bax",))
    request = Request(prompt="a", sampling=Sampling(temperature=0.0), stops=stops)
    pair = scripted_pair([A, B, A, END])
    events = generate([request], pair)  # type: ignore[arg-type]
    assert isinstance(next(events), Started)
    seen = []
    for _ in range(4):
        one = next(events)
        assert isinstance(one, Round)
        seen.append((one.index, pair.target.network.passes))
    assert seen == [(0, 1), (1, 4), (2, 4), (3, 4)]


def test_the_context_end_shrinks_the_draft_and_then_ends_the_run():
    rounds, ended = decode(scripted_pair([A] * 20, context=8), "model", "chain:4", Stops(max_new_tokens=99))
    assert ended.stop_reason == "context_end"
    assert [(one.drafted, len(one.committed)) for one in rounds] == [(4, 5), (1, 2)]


def test_the_last_room_is_decoded_plainly_when_no_draft_fits():
    rounds, ended = decode(scripted_pair([A] * 20), "model", "chain:4", Stops(max_new_tokens=6))
    assert ended.stop_reason == "max_new_tokens"
    assert [(one.drafted, len(one.committed)) for one in rounds] == [(4, 5), (0, 1)]
