"""Divergence of two outputs, token by token, and the first differing token of each (ux.md "text diff")."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from core.results.traces import Burst

MAX_COMPARED = 2000
"""Most tokens of each output aligned after the first difference; the time to align grows with the product."""

Where = Literal["both", "base", "other"]


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token: its id, and the text that it completed ("" while a character is incomplete)."""

    id: int
    text: str

    @property
    def shown(self) -> str:
        """The token's text, or its id if it completes no text."""
        return self.text or f"⟨{self.id}⟩"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Stretch of consecutive tokens found in both outputs, or in only one."""

    where: Where
    tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """Two outputs side by side.

    ``shared``: number of equal tokens from the start; ``base`` and ``other``: each output's first differing token, None
    if that output has ended. ``base_part`` and ``other_part``: each whole output in stretches. ``aligned``: False if a
    tail was longer than :data:`MAX_COMPARED`; the tokens beyond that count as different.
    """

    shared: int
    base: Token | None
    other: Token | None
    base_part: tuple[Stretch, ...]
    other_part: tuple[Stretch, ...]
    aligned: bool = True

    @property
    def identical(self) -> bool:
        """Whether no token differs."""
        return self.base is None and self.other is None


def emitted(bursts: Iterable[Burst]) -> list[Token]:
    """Every token of a run, in order."""
    return [Token(id, text) for burst in bursts for id, text in zip(burst.tokens, burst.texts, strict=True)]


def diverge(base: Sequence[Token], other: Sequence[Token], *, by_id: bool = True) -> Divergence:
    """Compare two outputs token by token: by id, or by text if their tokenizers differ."""
    left, right = _keys(base, by_id), _keys(other, by_id)
    shared = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    tail, behind = left[shared:], right[shared:]
    aligned = len(tail) <= MAX_COMPARED and len(behind) <= MAX_COMPARED
    same = _matches(tail[:MAX_COMPARED], behind[:MAX_COMPARED])
    return Divergence(
        shared=shared,
        base=base[shared] if shared < len(base) else None,
        other=other[shared] if shared < len(other) else None,
        base_part=_stretches(base, shared, [(a, size) for a, _, size in same], "base"),
        other_part=_stretches(other, shared, [(b, size) for _, b, size in same], "other"),
        aligned=aligned,
    )


def _keys(tokens: Sequence[Token], by_id: bool) -> tuple[Hashable, ...]:
    return tuple(token.id if by_id else token.text for token in tokens)


@lru_cache(maxsize=64)
def _matches(left: tuple[Hashable, ...], right: tuple[Hashable, ...]) -> tuple[tuple[int, int, int], ...]:
    """(start in left, start in right, size) of every common stretch. Cached, since a page calls this at each click."""
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return tuple((block.a, block.b, block.size) for block in blocks if block.size)


def _stretches(
    tokens: Sequence[Token], shared: int, same: Sequence[tuple[int, int]], alone: Where
) -> tuple[Stretch, ...]:
    """``tokens`` in stretches: the first ``shared`` tokens, then the common stretches ``same`` (starts counted from
    there) and the tokens between them."""
    found: list[Stretch] = []
    at = 0
    for start, size in [(0, shared), *((shared + begin, size) for begin, size in same), (len(tokens), 0)]:
        pieces: tuple[tuple[Where, int, int], ...] = ((alone, at, start), ("both", start, start + size))
        for where, begin, end in pieces:
            if begin < end:
                found.append(Stretch(where, end - begin, _text(tokens[begin:end], where)))
        at = start + size
    return tuple(found)


def _text(tokens: Sequence[Token], where: Where) -> str:
    text = "".join(token.text for token in tokens)
    return text if text or where == "both" else "".join(token.shown for token in tokens)
