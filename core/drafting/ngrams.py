"""What followed each n-gram of one growing sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class NgramIndex:
    """Follows one sequence. Adding a token and looking up what followed cost the same at any length of the sequence.

    ``shortest`` and ``longest`` bound the n-grams, ``depth`` the continuations, all in tokens. Per n-gram the different
    continuations of ``depth`` tokens are kept in the order of their last occurrence: however often a text repeats
    itself, each is looked at once.
    """

    def __init__(self, shortest: int, longest: int, depth: int) -> None:
        self.depth = depth
        self.tokens: list[int] = []
        self._followed: dict[int, dict[tuple[int, ...], dict[tuple[int, ...], None]]] = {
            size: {} for size in range(shortest, longest + 1)
        }

    def extend(self, tokens: Iterable[int]) -> None:
        """The sequence goes on with ``tokens``."""
        for token in tokens:
            self.tokens.append(token)
            self._complete()

    def _complete(self) -> None:
        """The last token completes the continuation of the n-grams that end ``depth`` tokens before the end."""
        begin = len(self.tokens) - self.depth
        following = tuple(self.tokens[begin:])
        for size, grams in self._followed.items():
            if size > begin:
                break
            continuations = grams.setdefault(tuple(self.tokens[begin - size : begin]), {})
            continuations.pop(following, None)  # put in again it is the latest
            continuations[following] = None

    def continuations(self, depth: int) -> Iterator[tuple[int, ...]]:
        """At most ``depth`` (no more than the index's own) tokens each that followed earlier occurrences of the n-gram
        at the end: longest n-gram first, latest occurrence first. Equal ones may come again."""
        for size, grams in reversed(self._followed.items()):
            if size < len(self.tokens):
                gram = self.tokens[-size:]
                for following in self._unfinished(gram):
                    yield following[:depth]
                for following in reversed(grams.get(tuple(gram), {})):
                    yield following[:depth]

    def _unfinished(self, gram: list[int]) -> Iterator[tuple[int, ...]]:
        """Continuations that the end of the sequence cuts short: they begin in its last ``depth`` − 1 tokens."""
        size, end = len(gram), len(self.tokens)
        for begin in range(end - 1, max(end - self.depth, size - 1), -1):
            if self.tokens[begin - size : begin] == gram:
                yield tuple(self.tokens[begin:])
