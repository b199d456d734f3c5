"""When a run stops, and what a stop cuts: EOS, stop strings across token borders, max new tokens, the context's end.

Cuts do not depend on how tokens were grouped into rounds: rounds whose text may be the beginning of a stop string are
held back until it is clear. So plain and speculative decoding end with the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.records import StopReason


class TextStream(Protocol):
    """Turns tokens into text one by one; "" while a character is split."""

    def step(self, token: int) -> str:
        """The text that this token completes."""
        ...

    def flush(self) -> str:
        """What is left of a truncated character."""
        ...


@dataclass(slots=True)
class StopWatch:
    """Follows one request's output. ``room``: tokens that context and ``max_new_tokens`` leave, with their reason."""

    stream: TextStream
    eos: frozenset[int]
    stop_strings: Sequence[str]
    room: int
    room_reason: StopReason
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    reason: StopReason | None = None
    _length: int = 0
    """Characters so far."""
    _tail: str = ""
    """The last of them: as many as a stop string can begin in, so that a token costs the same at any length."""

    def add(self, token: int) -> None:
        """Take the next committed token; afterwards ``reason`` is set if the run stops here, and ``tokens`` and
        ``pieces`` are cut to what stays."""
        piece = self.stream.step(token)
        self.tokens.append(token)
        self.pieces.append(piece)
        self._length += len(piece)
        self._tail = self._last_of(self._tail + piece, len(piece))
        if token in self.eos:
            self._end("eos")
        elif (start := self._stop_string(len(piece))) is not None:
            self._cut_at(start)
            self.reason = "stop_string"
        elif len(self.tokens) >= self.room:
            self._end(self.room_reason)

    @property
    def text(self) -> str:
        """The output text so far."""
        return "".join(self.pieces)

    def _last_of(self, tail: str, new: int) -> str:
        """What is needed of the text's end to find the stop strings that its last ``new`` characters complete."""
        longest = max(map(len, self.stop_strings), default=0)
        return tail[max(0, len(tail) - new - longest + 1) :] if longest else ""

    def undecided_from(self) -> int:
        """How many tokens are safe: those after these could still be cut, as their text may begin a stop string."""
        longest = max((self._overlap(stop) for stop in self.stop_strings), default=0)
        safe = len(self.tokens)
        while safe and longest > 0:
            safe -= 1
            longest -= len(self.pieces[safe])
        while safe and self.stop_strings and not self.pieces[safe - 1]:
            safe -= 1  # begins a split character, which may turn out to begin a stop string
        return safe

    def _overlap(self, stop: str) -> int:
        """Length of the longest proper prefix of ``stop`` at the text's end."""
        for size in range(min(len(stop) - 1, len(self._tail)), 0, -1):
            if self._tail.endswith(stop[:size]):
                return size
        return 0

    def _end(self, reason: StopReason) -> None:
        self.reason = reason
        if tail := self.stream.flush():
            self.pieces[-1] += tail

    def _stop_string(self, new: int) -> int | None:
        """Where the earliest stop string begins that the last ``new`` characters complete."""
        found = [self._tail.find(stop, max(0, len(self._tail) - new - len(stop) + 1)) for stop in self.stop_strings]
        before = self._length - len(self._tail)
        return min((before + start for start in found if start >= 0), default=None)

    def _cut_at(self, start: int) -> None:
        """Cut the text at ``start``; the token in which it lies stays only if text precedes it in that token."""
        kept, length = 0, 0
        while kept < len(self.pieces) and length + len(self.pieces[kept]) <= start:
            length += len(self.pieces[kept])
            kept += 1
        if length < start:
            self.pieces[kept] = self.pieces[kept][: start - length]
            kept += 1
        else:  # tokens that only began a split character before the stop carry no text: they go with it
            while kept and not self.pieces[kept - 1]:
                kept -= 1
        del self.tokens[kept:], self.pieces[kept:]
