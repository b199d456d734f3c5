"""The runs that are open on the device: each takes its turn, a round, one after the other, in one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from core.worker.open_run import OpenRun
from core.worker.protocol import Cancel, Command, Pause, Report, Resume, Run, RunEnded, Shutdown, Step, Together, Unload
from core.worker.runner import Runner


class Lanes:
    """``hear`` takes commands from any thread, ``serve`` decodes in the caller's and tells what happens there.

    One device, so one turn at a time, round-robin: with A and B open their rounds are A, B, A, B … until one ends.
    A run that stands keeps its place, so that a step is the next turn.
    """

    def __init__(self, runner: Runner, tell: Callable[[Report], None]) -> None:
        self._runner = runner
        self._tell = tell
        self._changed = threading.Condition()  # guards everything below
        self._open: dict[str, OpenRun] = {}
        self._turns: deque[OpenRun] = deque()
        self._unload = False
        self._stopping = False

    def hear(self, command: Command) -> None:
        """Take a command; one for a run that is over or unknown is left alone, so that it lies in wait for nobody."""
        with self._changed:
            match command:
                case Run():
                    self._begin([command])
                case Together(runs=runs):
                    self._begin(runs)
                case Unload():
                    self._unload = True
                case Shutdown():
                    self._stopping = True
                    for run in self._turns:
                        run.steering.cancel()
                case Cancel() | Pause() | Resume() | Step():
                    if command.run_id in self._open:
                        _steer(self._open[command.run_id], command)
            self._changed.notify_all()

    def serve(self) -> None:
        """Decode until shutdown, which ends every open run as cancelled."""
        while (run := self._next()) is not None:
            ended = run.turn()
            if ended is None:
                continue
            with self._changed:
                del self._open[run.run_id]
                self._turns.remove(run)
            self._tell(RunEnded(run_id=run.run_id, ended=ended))

    def _begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            opened = self._runner.open(run, self._tell)
            self._open[run.run_id] = opened
            self._turns.append(opened)
            if self._stopping:
                opened.steering.cancel()

    def _next(self) -> OpenRun | None:
        """Wait for a run that is due and move it to the end of the line; None when all is over."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unload or self._stopping or self._due() is not None)
                unload, self._unload = self._unload, False
                run = self._due()
                if run is not None:
                    self._turns.remove(run)
                    self._turns.append(run)
            if unload:
                self._runner.unload()
            if run is not None or self._stopping:
                return run

    def _due(self) -> OpenRun | None:
        return next((run for run in self._turns if run.due), None)


def _steer(run: OpenRun, command: Cancel | Pause | Resume | Step) -> None:
    match command:
        case Cancel():
            run.steering.cancel()
        case Pause():
            run.steering.pause()
        case Resume():
            run.steering.resume()
        case Step():
            run.steering.step()
