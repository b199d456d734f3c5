"""Where a run's records go as they happen. ``storage.store.Store`` is one; tests use lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from core.records import Ended, Round, Started, Summary
from core.types import RunSpec


class RunSink(Protocol):
    """Takes a run's records in order: submitted, started, rounds (whole ones, in batches), ended.

    Calls return at once: writing happens elsewhere, never on the decoding path. ``started`` and ``rounds`` may be
    missing (a run cancelled in the queue); ``ended`` comes exactly once unless the process dies.
    """

    def submitted(self, run_id: str, spec: RunSpec, session: str, at: datetime) -> None:
        """The run exists, queued, from this moment. ``session`` names the app process that took it."""
        ...

    def started(self, run_id: str, started: Started, at: datetime) -> None:
        """The run left the queue and its prompt is in the cache."""
        ...

    def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
        """Whole rounds, in order of index."""
        ...

    def ended(self, run_id: str, ended: Ended, summary: Summary | None, at: datetime) -> None:
        """The run is over; ``summary`` is None when it never started."""
        ...
