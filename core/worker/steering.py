"""What was asked of an open run: cancel, pause, resume, step; asked from any thread, read by the device's."""

from __future__ import annotations

import threading


class Steering:
    """Whether a run may take its next turn. A paused run takes one turn after another only to tell ``steps`` rounds."""

    def __init__(self, *, paused: bool = False) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._paused = paused
        self._steps = 0

    @property
    def cancelled(self) -> bool:
        """Its end was asked for."""
        return self._cancelled

    @property
    def stands(self) -> bool:
        """It waits for resume, step or cancel."""
        with self._lock:
            return self._paused and self._steps == 0 and not self._cancelled

    def cancel(self) -> None:
        """End it, paused or not."""
        with self._lock:
            self._cancelled = True

    def pause(self) -> None:
        """Let it stand after the round in progress; steps that it hasn't made are forgotten."""
        with self._lock:
            self._paused, self._steps = True, 0

    def resume(self) -> None:
        """Let it go on."""
        with self._lock:
            self._paused, self._steps = False, 0

    def step(self) -> None:
        """Let it tell one more round; nothing for a run that isn't paused."""
        with self._lock:
            self._steps += self._paused

    def stepped(self) -> None:
        """It told a round."""
        with self._lock:
            self._steps -= self._steps > 0
