"""Prompt lookup: copy what followed the latest occurrences of the current n-gram. Deterministic, no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from core.drafting.base import DraftRequest, NoDraft
from core.drafting.draft import Draft
from core.records import ROOT
from core.types import PromptLookupDrafter, TreeShape


class NgramIndex:
    """Index of what followed each n-gram of one growing sequence.

    n-grams have ``shortest`` to ``longest`` tokens, continuations ``depth``. The distinct continuations of each n-gram
    are kept in the order of their last occurrence, so a repetitive text costs no more than another. Adding a token and
    looking up continuations take the same time at any length.
    """

    def __init__(self, shortest: int, longest: int, depth: int) -> None:
        self.depth = depth
        self.tokens: list[int] = []
        self._followed: dict[int, dict[tuple[int, ...], dict[tuple[int, ...], None]]] = {
            size: {} for size in range(shortest, longest + 1)
        }

    def extend(self, tokens: Iterable[int]) -> None:
        """Append ``tokens`` to the sequence."""
        for token in tokens:
            self.tokens.append(token)
            self._complete()

    def _complete(self) -> None:
        """Add the continuation that the last token completes to the n-grams that it follows."""
        begin = len(self.tokens) - self.depth
        following = tuple(self.tokens[begin:])
        for size, grams in self._followed.items():
            if size > begin:
                break
            continuations = grams.setdefault(tuple(self.tokens[begin - size : begin]), {})
            continuations.pop(following, None)  # added again below, as the latest
            continuations[following] = None

    def continuations(self, depth: int) -> Iterator[tuple[int, ...]]:
        """Yield what followed earlier occurrences of the final n-gram, longest n-gram first, latest occurrence first.

        Each has at most ``depth`` tokens (and at most the index's own depth); the same continuation may come twice.
        """
        for size, grams in reversed(self._followed.items()):
            if size < len(self.tokens):
                gram = self.tokens[-size:]
                for following in self._unfinished(gram):
                    yield following[:depth]
                for following in reversed(grams.get(tuple(gram), {})):
                    yield following[:depth]

    def _unfinished(self, gram: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield continuations from the last ``depth`` − 1 tokens, cut short by the sequence's end."""
        size, end = len(gram), len(self.tokens)
        for begin in range(end - 1, max(end - self.depth, size - 1), -1):
            if self.tokens[begin - size : begin] == gram:
                yield tuple(self.tokens[begin:])


class PromptLookup(NoDraft):
    """Drafter that copies continuations: longest n-gram first, latest occurrence first.

    A chain copies one continuation. A tree ``s{steps}_k{topk}_d{nodes}`` merges up to topk different continuations of
    ``steps`` tokens into a trie and keeps its first nodes − 1 nodes by depth.
    """

    def __init__(self, spec: PromptLookupDrafter) -> None:
        self.spec = spec
        self._indexes: dict[int, NgramIndex] = {}

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Drop the index of the slot's previous sequence.

        A new index is built at the first request for a draft, whose shape decides the length of the continuations.
        """
        self._indexes.pop(slot, None)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._indexes.pop(slot, None)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """A draft per request; empty if nothing matches."""
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        depth = min(request.shape.depth, request.depth)
        if depth <= 0:
            return Draft()
        breadth = request.shape.topk if isinstance(request.shape, TreeShape) else 1
        continuations: list[tuple[int, ...]] = []
        for found in self._index(request).continuations(depth):
            if not any(known[: len(found)] == found for known in continuations):
                continuations.append(found)
            if len(continuations) == breadth:
                break
        return trie(continuations, request.shape.drafted)

    def _index(self, request: DraftRequest) -> NgramIndex:
        """The slot's index, updated to the last committed token."""
        index = self._indexes.get(request.slot)
        if index is None or index.depth != request.shape.depth:
            index = NgramIndex(self.spec.min_ngram, self.spec.max_ngram, request.shape.depth)
            self._indexes[request.slot] = index
        index.extend(request.prefix[len(index.tokens) :])
        return index


def trie(paths: Sequence[Sequence[int]], nodes: int) -> Draft:
    """Merge token paths into one deterministic draft of at most ``nodes`` candidates, shallower first."""
    tokens: list[int] = []
    parents: list[int] = []
    place: dict[tuple[int, ...], int] = {(): ROOT}
    for depth in range(1, max(map(len, paths), default=0) + 1):
        for path in paths:
            key = tuple(path[:depth])
            if len(key) == depth and key not in place and len(tokens) < nodes:
                place[key] = len(tokens)
                parents.append(place[key[:-1]])
                tokens.append(key[-1])
    return Draft.chosen(tokens, parents)
