"""The engine with a tap, for ``benchmarks.live``: ``engine.cycles``, which notes on the Unix clock when each round
ended, before anybody else hears of it, and begins only when it is told to.

It runs in the worker, put there by ``SPECLENS_ENGINE``. The n-th request of the process waits until the file ``go-n``
exists in the folder that :data:`FOLDER` names, so that every viewer is there before the first round, and writes its
rounds to ``rounds-n.jsonl``. The engine's clock starts after the wait and stands while a line is written.
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
"""Environment variable: where the files are."""

POLL_S = 0.02

_numbers = itertools.count()


def cycles(
    requests: Sequence[Request], pair: Any, *, should_stop: Callable[[], bool] = lambda: False
) -> Generator[tuple[Event, ...], None, None]:
    """As :func:`core.decoding.engine.cycles`."""
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
