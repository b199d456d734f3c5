"""Two outputs token by token: where they part, and what stands only in one."""

from __future__ import annotations

import time

from core.results.divergence import MAX_COMPARED, Divergence, Stretch, Token, diverge, emitted
from core.results.traces import Burst


def tokens(text: str) -> list[Token]:
    """One token a word; equal words have equal ids."""
    return [Token(sum(ord(c) * 31**i for i, c in enumerate(word)), f"{word} ") for word in text.split()]


def both(result: Divergence) -> tuple[str, str]:
    """The two outputs put together again."""
    return "".join(s.text for s in result.base_part), "".join(s.text for s in result.other_part)


def test_equal_outputs_are_identical():
    result = diverge(tokens("a b c"), tokens("a b c"))
    assert result.identical
    assert result.shared == 3
    assert result.base_part == result.other_part == (Stretch("both", 3, "a b c "),)


def test_the_first_difference_is_named_by_both_tokens():
    result = diverge(tokens("the cat sat down"), tokens("the dog sat down"))
    assert (result.shared, result.identical) == (1, False)
    assert result.base is not None and result.base.text == "cat "
    assert result.other is not None and result.other.text == "dog "
    assert [s.where for s in result.base_part] == ["both", "base", "both"]
    assert [s.where for s in result.other_part] == ["both", "other", "both"]
    assert both(result) == ("the cat sat down ", "the dog sat down ")


def test_an_output_that_ends_earlier_has_no_token_there():
    result = diverge(tokens("a b"), tokens("a b c"))
    assert (result.shared, result.base) == (2, None)
    assert result.other is not None and result.other.text == "c "
    assert result.base_part == (Stretch("both", 2, "a b "),)


def test_empty_outputs_are_identical_and_an_empty_one_shares_nothing():
    assert diverge([], []).identical
    result = diverge([], tokens("a"))
    assert (result.shared, result.base_part) == (0, ())
    assert result.other_part == (Stretch("other", 1, "a "),)


def test_a_split_character_is_named_by_its_id():
    result = diverge([Token(1, "a"), Token(2, "")], [Token(1, "a"), Token(3, "b")])
    assert result.base is not None and result.base.shown == "⟨2⟩"
    assert result.base_part[-1] == Stretch("base", 1, "⟨2⟩")


def test_other_tokenizers_are_compared_by_text():
    base, other = [Token(1, "a"), Token(2, "b")], [Token(7, "a"), Token(8, "b")]
    assert diverge(base, other).shared == 0
    assert diverge(base, other, by_id=False).identical


def test_a_tail_too_long_to_align_says_so_and_loses_nothing():
    long = [Token(i % 97, f"{i % 97} ") for i in range(2 * MAX_COMPARED)]
    other = [Token(1000, "x "), *long]
    start = time.perf_counter()
    result = diverge(long, other)
    assert time.perf_counter() - start < 5
    assert not result.aligned
    assert both(result) == ("".join(t.text for t in long), "".join(t.text for t in other))
    assert sum(s.tokens for s in result.other_part) == len(other)


def test_tokens_come_out_of_bursts_in_order():
    assert emitted([Burst(0, (5, 6), ("a", ""), 0.1), Burst(1, (7,), ("é",), 0.2)]) == [
        Token(5, "a"),
        Token(6, ""),
        Token(7, "é"),
    ]
