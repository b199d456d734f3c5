"""Loading a pair ahead of its first run, and knowing which ones the engine holds.

A load is the shortest run there is: one token, decoded plainly and thrown away. It takes the way that every run takes
(queue, progress, cancel, sentences), ends with the pair in memory, and shows that a pass really works on this device.
"""

from __future__ import annotations

from collections import Counter

from core.types import PairSpec, Request, RunSpec, Stops

PROMPT = "Hello"


def warm_up(pair: PairSpec) -> RunSpec:
    """The run that does nothing but load ``pair``."""
    return RunSpec(pair=pair, request=Request(prompt=PROMPT, chat=False, stops=Stops(max_new_tokens=1)))


class Held:
    """Which pairs the engine holds, told by what happens to its runs: a pair that no run uses is freed before another
    is loaded. Not thread-safe: the queue's lock guards it.
    """

    def __init__(self) -> None:
        self._held: dict[PairSpec, None] = {}
        self._using: Counter[PairSpec] = Counter()
        self._leaving: set[PairSpec] = set()

    @property
    def pairs(self) -> tuple[PairSpec, ...]:
        """Those that are in memory for sure, in the order in which they were loaded."""
        return tuple(self._held)

    def beginning(self, pair: PairSpec) -> None:
        """A run of ``pair`` goes to the engine."""
        self._using[pair] += 1
        if pair not in self._held:
            self._drop([other for other in self._held if not self._using[other]])

    def proved(self, pair: PairSpec) -> None:
        """A run of ``pair`` put its prompt into the cache."""
        self._held[pair] = None

    def over(self, pair: PairSpec) -> None:
        """A run of ``pair`` that had begun is over."""
        self._using[pair] -= 1
        if not self._using[pair] and pair in self._leaving:
            self._drop([pair])

    def freeing(self) -> None:
        """Unloading was asked for; runs that have begun keep their pairs to their end."""
        in_use = [pair for pair, runs in self._using.items() if runs]
        self._leaving.update(in_use)
        self._drop([pair for pair in self._held if pair not in in_use])

    def lost(self) -> None:
        """The engine's process is gone, and every pair with it."""
        self._held.clear()

    def _drop(self, pairs: list[PairSpec]) -> None:
        for pair in pairs:
            self._held.pop(pair, None)
            self._leaving.discard(pair)
