"""Prompt lookup: copy what followed the last occurrences of the current n-gram. Deterministic, no model."""

from __future__ import annotations

from collections.abc import Sequence

from core.drafting.base import NoDraft, Want
from core.drafting.draft import Draft
from core.drafting.ngrams import NgramIndex
from core.records import ROOT
from core.types import PromptLookupDrafter, TreeShape


class PromptLookup(NoDraft):
    """Longest n-gram first, latest occurrence first.

    A chain copies one continuation. A tree ``s{steps}_k{topk}_d{nodes}`` merges up to topk different continuations of
    ``steps`` tokens into a trie and keeps the first nodes − 1 by depth.
    """

    def __init__(self, spec: PromptLookupDrafter) -> None:
        self.spec = spec
        self._indexes: dict[int, NgramIndex] = {}

    def open(self, slot: int, tokens: Sequence[int]) -> None:
        """Another sequence: it is read when its first draft is wanted, as the index is made for the wish's depth."""
        self._indexes.pop(slot, None)

    def close(self, slot: int) -> None:
        """Forget the slot's sequence."""
        self._indexes.pop(slot, None)

    def propose(self, wants: Sequence[Want]) -> list[Draft]:
        """A draft per wish; empty where nothing matches."""
        return [self._draft(want) for want in wants]

    def _draft(self, want: Want) -> Draft:
        depth = min(want.shape.depth, want.depth)
        if depth <= 0:
            return Draft()
        breadth = want.shape.topk if isinstance(want.shape, TreeShape) else 1
        continuations: list[tuple[int, ...]] = []
        for found in self._index(want).continuations(depth):
            if not any(known[: len(found)] == found for known in continuations):
                continuations.append(found)
            if len(continuations) == breadth:
                break
        return trie(continuations, want.shape.drafted)

    def _index(self, want: Want) -> NgramIndex:
        """The slot's index, up to the last committed token."""
        index = self._indexes.get(want.slot)
        if index is None or index.depth != want.shape.depth:
            index = NgramIndex(self.spec.min_ngram, self.spec.max_ngram, want.shape.depth)
            self._indexes[want.slot] = index
        index.extend(want.prefix[len(index.tokens) :])
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
