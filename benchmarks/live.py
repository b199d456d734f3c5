"""``python -m benchmarks.live``: the delay until a round is visible, and the cost of viewers to the engine.

Starts the app with the embedded model and a temporary data folder, and decodes the same greedy request repeatedly with
0, 1, 5 and 20 viewers in turn: pages of one headless Chromium, each with its own window and session. The browser runs
on this machine too, unlike in real use: ``--nice 19`` leaves it only the processor time that engine and app don't need;
``--remote`` replaces it by connections that request every redraw and draw nothing, like viewers on other machines, and
measures decoding alone. With 0 viewers the run is submitted by a page that is closed before the first round. Prints
Markdown and then one line of JSON. Exit code 1 when a target is missed.

* *round end → paint*: from the engine's commit of a round (Unix clock, in the engine's process) to the moment after the
  first frame that shows the round's row (Unix clock, in the page). A page shows an ended run from its first rounds, so
  rounds after the last redraw never appear as rows; they are counted separately.
* *decoding*: stored tokens per second, medians; the ratio is the median over turns of a turn's tokens per second over
  those of the same turn without viewers.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import typer
from playwright.sync_api import Browser

from benchmarks.live_engine import FOLDER
from benchmarks.remote import RemoteViewer
from benchmarks.viewers import Viewers
from storage.queries import Runs
from storage.store import Store
from tests.helpers.running_app import RunningApp, open_browser, running_app

PAINT_P95_S = 0.7
"""Target: 95 % of rounds are painted within this many seconds of their end, with one viewer."""

SLOWED = 0.02
"""Target: largest share of decoding speed that one viewer costs."""

PATIENCE_S = 900.0
"""Timeout of one run, in seconds."""

PROMPT = "Tell a long story about a lighthouse keeper who had not seen a ship for eleven days."

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Turn:
    """One run with viewers. ``paint_s``: seconds from a round's end to its paint, per viewer and round; ``unseen``:
    rounds that never appeared as a row; ``redraws``: of all remote viewers together; then processor seconds per second
    of decoding, by process."""

    viewers: int
    run_id: str
    paint_s: tuple[float, ...]
    unseen: int
    redraws: int
    engine_cpu: float
    app_cpu: float
    browser_cpu: float


@dataclass(frozen=True, slots=True)
class Watch:
    """How runs are watched: their number of ``tokens``, the browser's niceness, and whether viewers are ``remote``."""

    tokens: int
    nice: int
    remote: bool


@app.command()
def measure(
    viewers: Annotated[str, typer.Option(help="How many viewers, in turn.")] = "0,1,5,20",
    repeat: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 5,
    tokens: Annotated[int, typer.Option(min=8, help="Tokens of each run.")] = 160,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Niceness of the browser; 19: it takes what the engine leaves.")
    ] = 0,
    remote: Annotated[bool, typer.Option("--remote", help="Viewers without a browser here: decoding alone.")] = False,
) -> None:
    """Measures round end → paint, and the decoding speed with viewers."""
    counts = [int(count) for count in viewers.split(",")]
    watch = Watch(tokens, nice, remote)
    with tempfile.TemporaryDirectory(prefix="speclens-live-") as name:
        folder = Path(name)
        os.environ |= {FOLDER: name, "SPECLENS_ENGINE": "benchmarks.live_engine:cycles"}
        before = os.getloadavg()[0]
        with running_app(folder / "data", fake=False) as running, open_browser() as browser:
            turns = _turns(running, browser, folder, counts, repeat, watch)
        with Store(folder / "data" / "speclens.duckdb") as store:
            speeds = _speeds(Runs(store), turns)
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, load average before {before:.1f}; ", end="")
    print(f"{repeat} runs of {tokens} tokens each, after one to warm up.\n")
    if not _report(counts, turns, speeds):
        raise typer.Exit(1)


def _turns(
    running: RunningApp, browser: Browser, folder: Path, counts: Sequence[int], repeat: int, watch: Watch
) -> list[Turn]:
    """Every run but the first, which loads the model. Each repetition begins with another number of viewers, so that
    drift of the machine favours none."""
    order = [counts[(place + shift) % len(counts)] for shift in range(repeat) for place in range(len(counts))]
    turns = []
    for number, count in enumerate((1, *order)):
        turn = _turn(running, browser, folder, number, count, replace(watch, tokens=8) if number == 0 else watch)
        print(f"run {number} of {len(order)}: {count} viewers", end="\r", file=sys.stderr, flush=True)
        turns.append(turn)
    print(file=sys.stderr)
    return turns[1:]


def _turn(running: RunningApp, browser: Browser, folder: Path, number: int, count: int, watch: Watch) -> Turn:
    watching = Viewers(browser, running.url)
    elsewhere: list[RemoteViewer] = []
    try:
        run_id = watching.submit(PROMPT, watch.tokens)
        watching.watch(run_id, 0 if watch.remote else count)
        elsewhere += [RemoteViewer(running.url, run_id) for _ in range(count if watch.remote else 0)]
        for viewer in elsewhere:
            viewer.wait()
        _yielding(_browser(running), watch.nice)
        time.sleep(1.0)  # what opening pages has set going dies down
        before, begun = _cpu(running), time.monotonic()
        (folder / f"go-{number}").touch()
        ends = _rounds(folder / f"rounds-{number}.jsonl")
        took = time.monotonic() - begun
        used = [(after - at_first) / took for at_first, after in zip(before, _cpu(running), strict=True)]
        time.sleep(2.0)  # the last drawing
        painted = watching.painted()
    finally:
        watching.close()
        for viewer in elsewhere:
            viewer.close()
    paint_s = tuple(seen[index] - at for seen in painted for index, at in ends.items() if index in seen)
    unseen = sum(index not in seen for seen in painted for index in ends)
    return Turn(count, run_id, paint_s, unseen, sum(viewer.redraws for viewer in elsewhere), *used)


def _rounds(path: Path) -> dict[int, float]:
    """The end of each round (Unix seconds), after the run has ended."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if lines and lines[-1].endswith("\n") and "ended" in json.loads(lines[-1]):
            return {one["round"]: one["at"] for one in map(json.loads, lines[:-1])}
        time.sleep(0.25)
    raise RuntimeError(f"a run had not ended after {PATIENCE_S:.0f} s: give it fewer --tokens.")


def _cpu(running: RunningApp) -> tuple[float, float, float]:
    """Processor seconds so far of the engine, of the app, and of the browser with its driver."""
    app = psutil.Process(running.process.pid)
    return _spent(app.children()), _spent([app]), _spent(_browser(running))


def _yielding(processes: Sequence[psutil.Process], nice: int) -> None:
    """Sets the niceness of processes and of their sessions' scheduling groups, which Linux weighs first."""
    ours = Path("/proc/self/autogroup")
    for process in processes:
        process.nice(nice)
        group = Path(f"/proc/{process.pid}/autogroup")
        if ours.exists() and group.read_text().split()[0] != ours.read_text().split()[0]:
            group.write_text(str(nice))


def _browser(running: RunningApp) -> list[psutil.Process]:
    """The processes of the browser and its driver: all children of this process except the app and its engine."""
    app = psutil.Process(running.process.pid)
    theirs = {app.pid, *(one.pid for one in app.children(recursive=True))}
    return [one for one in psutil.Process().children(recursive=True) if one.pid not in theirs]


def _spent(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # a helper of the browser that has just ended
            continue
        total += times.user + times.system
    return total


def _speeds(runs: Runs, turns: Sequence[Turn]) -> list[float]:
    """Tokens per second of each turn, from the store."""
    found = []
    for turn in turns:
        run = runs.get(turn.run_id)
        if run is None or run.status != "done" or run.summary is None or run.summary.tokens_per_second is None:
            raise RuntimeError(f"run {turn.run_id} is not in the store as done: see the app's worker.log.")
        found.append(run.summary.tokens_per_second)
    return found


def _report(counts: Sequence[int], turns: Sequence[Turn], speeds: Sequence[float]) -> bool:
    """Prints both tables and the JSON; returns whether the targets were met (True if one viewer was not measured)."""
    rows = [_row(count, counts, turns, speeds) for count in counts]
    print("| viewers | rounds seen | never a row | paint p50 | p95 | max |\n|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        if row["p50_s"] is not None:
            times = " | ".join(f"{1000 * row[name]:.0f} ms" for name in ("p50_s", "p95_s", "max_s"))
            print(f"| {row['viewers']} | {row['seen']} | {row['unseen']} | {times} |")
    print("\n| viewers | tokens/s | of unwatched | engine, app, browser: cores in use | remote redraws |")
    print("|---:|---:|---:|---|---:|")
    for row in rows:
        of = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        print(f"| {row['viewers']} | {row['tokens_per_second']:.2f} | {of} | {row['cores']} | {row['redraws'] or ''} |")
    one = next((row for row in rows if row["viewers"] == 1), {"p95_s": None, "ratio": None})
    late = one["p95_s"] is not None and one["p95_s"] > PAINT_P95_S
    slowed = one["ratio"] is not None and one["ratio"] < 1 - SLOWED
    targets = [
        f"p95 ≤ {1000 * PAINT_P95_S:.0f} ms {_verdict(one['p95_s'], late)}",
        f"at most {SLOWED:.0%} slower {_verdict(one['ratio'], slowed)}",
    ]
    print(f"\nTargets with one viewer: {', '.join(targets)}.\n")
    print(json.dumps({"rows": rows, "turns": [_rounded(turn) for turn in turns]}))
    return not (late or slowed)


def _verdict(measured: float | None, missed: bool) -> str:
    return "not measured" if measured is None else "missed" if missed else "met"


def _row(count: int, counts: Sequence[int], turns: Sequence[Turn], speeds: Sequence[float]) -> dict:
    mine = [turn for turn in turns if turn.viewers == count]
    speed_of_mine = [speed for turn, speed in zip(turns, speeds, strict=True) if turn.viewers == count]
    paint = [s for turn in mine for s in turn.paint_s]
    p50, p95, slowest = np.percentile(paint, (50, 95, 100)) if paint else (None, None, None)
    size = len(counts)
    ratios = []
    for start in range(0, len(turns), size):
        speed = {turn.viewers: at for turn, at in zip(turns[start:], speeds[start : start + size], strict=False)}
        if 0 in speed:
            ratios.append(speed[count] / speed[0])
    cores = (statistics.median(getattr(turn, f"{side}_cpu") for turn in mine) for side in ("engine", "app", "browser"))
    return {
        "viewers": count,
        "seen": len(paint),
        "unseen": sum(turn.unseen for turn in mine),
        "redraws": sum(turn.redraws for turn in mine),
        "p50_s": p50 if p50 is None else float(p50),
        "p95_s": p95 if p95 is None else float(p95),
        "max_s": slowest if slowest is None else float(slowest),
        "tokens_per_second": statistics.median(speed_of_mine),
        "ratio": statistics.median(ratios) if ratios else None,
        "cores": ", ".join(f"{used:.2f}" for used in cores),
    }


def _rounded(turn: Turn) -> dict:
    return {**asdict(turn), "paint_s": [round(s, 3) for s in turn.paint_s]}


if __name__ == "__main__":
    app()
