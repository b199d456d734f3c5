"""A process that opens a store and does one thing with it; tests kill it or limit its disk.

``python -m tests.helpers.writing_process write|hold|starve|export|download FILE``
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from core.errors import StorageUnavailable
from storage.__main__ import main
from storage.export.bundle import export_file
from storage.export.dictionary import FORMATS
from storage.filters import RunFilter
from storage.queries import Runs
from storage.store import Store
from tests.helpers.records import at, ended, round_, run_id, spec, started, summary


def report(**what: object) -> None:
    """Prints one JSON line for the test."""
    print(json.dumps(what), flush=True)


def write(store: Store) -> None:
    """Writes an ended run, one that goes on until this process is killed, and a queued one."""
    store.submitted(run_id(1), spec(), "dead", at(0))
    store.started(run_id(1), started(), at(0))
    store.rounds(run_id(1), [round_(0)])
    store.ended(run_id(1), ended(), summary(), at(1))
    store.submitted(run_id(2), spec(), "dead", at(2))
    store.started(run_id(2), started(), at(3))
    store.submitted(run_id(3), spec(), "dead", at(4))
    for index in range(100_000):
        store.rounds(run_id(2), [round_(index)])
        report(round=index)
        time.sleep(0.02)


def hold(store: Store) -> None:
    """Keeps the file open, idle."""
    report(holds=str(store.path))
    time.sleep(600)


def starve(store: Store) -> None:
    """Writes until a file size limit acts as a full disk, then lifts the limit and goes on."""
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
    report(trouble=store.trouble, handed_in=index, readable=readable)
    store.rounds(run_id(1), [round_(index, f"text {index}")])
    time.sleep(0.5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.flush()
    found = Runs(store).rounds(run_id(1))
    whole = found == [round_(number, f"text {number}") for number in range(index + 1)]
    report(trouble=store.trouble, stored=len(found), whole=whole)
    store.ended(run_id(1), ended(), summary(), at(9))
    store.close()


def small_files() -> None:
    """Limits files to 100 kB from now on, like a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))


def download(store: Store) -> None:
    """Exports for a download in both formats, without room for either."""
    small_files()
    for format in FORMATS:
        try:
            export_file(store, RunFilter(), "candidates", format, folder=store.path.parent)
        except StorageUnavailable as error:
            report(refused=str(error), beside=sorted(one.name for one in store.path.parent.iterdir()))


def export(path: str) -> int:
    """``python -m storage export`` into folders beside the file, without room for the candidates."""
    small_files()
    folder = Path(path).parent
    codes = [main(["export", "--db", path, "--out", str(folder / "csv"), "--format", "csv"])]
    codes += [main(["export", "--db", path, "--out", str(folder / "parquet"), "--format", "parquet"])]
    codes += [main(["export", "--db", path, "--out", str(folder / "zip"), "--zip", "--format", "parquet"])]
    report(codes=codes)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "export":
        sys.exit(export(sys.argv[2]))
    {"write": write, "hold": hold, "starve": starve, "download": download}[sys.argv[1]](Store(sys.argv[2]))
