"""The engine for ``benchmarks.live``: ``engine.cycles`` that waits for a start file and logs when each round ends.

It replaces the engine in the worker through ``SPECLENS_ENGINE``. The n-th request of the process waits for the file
``go-n`` in the folder that :data:`FOLDER` names, so that every viewer is connected before the first round, and writes
the Unix time of each round's end to ``rounds-n.jsonl`` before the round is reported. The engine's clock starts after
the wait and stops while a line is written.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from core.decoding import engine
from core.records import Ended, Event, Round
from core.types import Request

FOLDER = "SPECLENS_BENCH_FOLDER"
"""Environment variable with the folder of the files."""

POLL_S = 0.02

_numbers = itertools.count()


def cycles(
    requests: Sequence[Request], pair: Any, *, should_stop: Callable[[], bool] = lambda: False
) -> Generator[tuple[Event, ...], None, None]:
    """Like :func:`core.decoding.engine.cycles`."""
    folder, number = Path(os.environ[FOLDER]), next(_numbers)
    while not (folder / f"go-{number}").exists() and not should_stop():
        time.sleep(POLL_S)
    inner = engine.cycles(requests, pair, should_stop=should_stop)
    with (folder / f"rounds-{number}.jsonl").open("w", buffering=1) as lines, closing(inner):
        for events in inner:
            at = time.time()
            for event in events:
                if isinstance(event, Round):
                    lines.write(json.dumps({"round": event.index, "at": at}) + "\n")
                elif isinstance(event, Ended):
                    lines.write(json.dumps({"ended": event.stop_reason, "at": at}) + "\n")
            yield events
