"""Loading a pair ahead of its first run, and knowing which one the engine holds.

A load is the shortest run there is: one token, decoded plainly and thrown away. It takes the way that every run takes
(queue, progress, cancel, sentences), ends with the pair in memory, and shows that a pass really works on this device.
"""

from __future__ import annotations

from core.types import PairSpec, Request, RunSpec, Stops

PROMPT = "Hello"


def warm_up(pair: PairSpec) -> RunSpec:
    """The run that does nothing but load ``pair``."""
    return RunSpec(pair=pair, request=Request(prompt=PROMPT, chat=False, stops=Stops(max_new_tokens=1)))


class Held:
    """Which pair the engine holds, told by what happens to its runs: it frees the old pair before it loads another.

    Not thread-safe: the queue's lock guards it.
    """

    def __init__(self) -> None:
        self._pair: PairSpec | None = None
        self._freed_after_run = False

    @property
    def pair(self) -> PairSpec | None:
        """The pair in memory, None when there is none for sure."""
        return self._pair

    def beginning(self, pair: PairSpec) -> None:
        """A run of ``pair`` goes to the engine."""
        if pair != self._pair:
            self._pair = None

    def proved(self, pair: PairSpec) -> None:
        """A run of ``pair`` put its prompt into the cache."""
        self._pair = pair

    def freeing(self, running: bool) -> None:
        """Unloading was asked for; a run in flight keeps its pair to its end."""
        if running:
            self._freed_after_run = True
        else:
            self._pair = None

    def over(self) -> None:
        """The run in flight ended."""
        if self._freed_after_run:
            self.lost()

    def lost(self) -> None:
        """The engine's process is gone, or was told to free the pair."""
        self._pair, self._freed_after_run = None, False
