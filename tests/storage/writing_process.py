"""A process of its own that opens a store and does one thing with it; the tests kill it or starve it of disk.

``python -m tests.storage.writing_process write|hold|starve FILE``
"""

from __future__ import annotations

import json
import resource
import sys
import time

from storage.queries import Runs
from storage.store import Store
from tests.storage.records import at, ended, round_, run_id, spec, started, summary


def say(**what: object) -> None:
    """One JSON line to the test."""
    print(json.dumps(what), flush=True)


def write(store: Store) -> None:
    """A run that is over, one that goes on until this process is killed, and one that waits."""
    store.submitted(run_id(1), spec(), "dead", at(0))
    store.started(run_id(1), started(), at(0))
    store.rounds(run_id(1), [round_(0)])
    store.ended(run_id(1), ended(), summary(), at(1))
    store.submitted(run_id(2), spec(), "dead", at(2))
    store.started(run_id(2), started(), at(3))
    store.submitted(run_id(3), spec(), "dead", at(4))
    for index in range(100_000):
        store.rounds(run_id(2), [round_(index)])
        say(round=index)
        time.sleep(0.02)


def hold(store: Store) -> None:
    """Keeps the file open, idle."""
    say(holds=str(store.path))
    time.sleep(600)


def starve(store: Store) -> None:
    """Writes until a file size limit stands in for a full disk, then goes on when it is lifted."""
    store.submitted(run_id(1), spec(), "s", at(0))
    store.started(run_id(1), started(), at(0))
    store.flush()
    room = store.path.stat().st_size + 400_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    index = 0
    while store.trouble is None:
        store.rounds(run_id(1), [round_(index + more, f"text {index + more}") for more in range(50)])
        index += 50
        time.sleep(0.02)
    readable = len(Runs(store).rounds(run_id(1)))
    say(trouble=store.trouble, handed_in=index, readable=readable)
    store.rounds(run_id(1), [round_(index, f"text {index}")])
    time.sleep(0.5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.flush()
    found = Runs(store).rounds(run_id(1))
    whole = found == [round_(number, f"text {number}") for number in range(index + 1)]
    say(trouble=store.trouble, stored=len(found), whole=whole)
    store.ended(run_id(1), ended(), summary(), at(9))
    store.close()


if __name__ == "__main__":
    {"write": write, "hold": hold, "starve": starve}[sys.argv[1]](Store(sys.argv[2]))
