"""Stops of a run and what they cut: EOS, stop strings across token borders, max new tokens, the context's end.

Cuts do not depend on how tokens are grouped into rounds: a round whose text may begin a stop string is held back until
this is decided. So plain and speculative decoding end with the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.records import StopReason


class TextStream(Protocol):
    """Decoder of tokens into text, one by one; "" while a character is incomplete."""

    def step(self, token: int) -> str:
        """The text that this token completes."""
        ...

    def flush(self) -> str:
        """The rest of a truncated character."""
        ...


@dataclass(slots=True)
class StopWatch:
    """Output of one request and its stops. ``room``: tokens that context and ``max_new_tokens`` allow;
    ``room_reason``: the limit that applies."""

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
    """The last characters, as many as may hold the start of a stop string, so that a token costs the same at any
    length."""

    def add(self, token: int) -> None:
        """Add the next committed token. If the run stops here, set ``reason`` and cut ``tokens`` and ``pieces`` to
        what stays."""
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
        """The end of the text, as long as needed to find stop strings that its last ``new`` characters complete."""
        longest = max(map(len, self.stop_strings), default=0)
        return tail[max(0, len(tail) - new - longest + 1) :] if longest else ""

    def undecided_from(self) -> int:
        """Number of tokens that no later stop can cut: the text of the tokens after them may begin a stop string."""
        longest = max((self._overlap(stop) for stop in self.stop_strings), default=0)
        safe = len(self.tokens)
        while safe and longest > 0:
            safe -= 1
            longest -= len(self.pieces[safe])
        while safe and self.stop_strings and not self.pieces[safe - 1]:
            safe -= 1  # part of a split character, which may itself begin a stop string
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
        """Start of the earliest stop string that the last ``new`` characters complete, None without one."""
        found = [self._tail.find(stop, max(0, len(self._tail) - new - len(stop) + 1)) for stop in self.stop_strings]
        before = self._length - len(self._tail)
        return min((before + start for start in found if start >= 0), default=None)

    def _cut_at(self, start: int) -> None:
        """Cut the text at ``start``; the token that contains this point stays only if it has text before it."""
        kept, length = 0, 0
        while kept < len(self.pieces) and length + len(self.pieces[kept]) <= start:
            length += len(self.pieces[kept])
            kept += 1
        if length < start:
            self.pieces[kept] = self.pieces[kept][: start - length]
            kept += 1
        else:  # tokens before the stop that are only part of a split character have no text: cut them as well
            while kept and not self.pieces[kept - 1]:
                kept -= 1
        del self.tokens[kept:], self.pieces[kept:]
