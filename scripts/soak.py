"""A soak test of memory: runs of every kind, one after the other, for some minutes, over the app's own services.

    python scripts/soak.py [--minutes 10] [--fake] [--seed 0]

The app's side (queue, store, reading and drawing of pages) runs in this process, the engine in another; both are
sampled every second. Runs use random drafters, shapes and rules of the pair; some are cancelled, raced, paused and
stepped, all are read as a page reads them, exported, and found in the history. After a warm-up, a line is fitted to the
memory of each process. ``--fake``: table-driven models instead of the embedded one, for many more runs in the same
time.

Exit code 1 when a process significantly grows faster than :data:`LIMIT`, or a run ends with the wrong status.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import psutil
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.jobs.jobs import Jobs
from core.records import TERMINAL
from core.types import NoDrafter, NoShape, PairSpec, Request, RunSpec, Sampling, Stops
from pages.ui.kit.runs import find, rounds
from pages.ui.kit.services import Services, open_services, worker_command
from pages.ui.rounds import tokens, trees
from storage.export.dictionary import TABLES
from storage.filters import RunFilter
from storage.queries import Runs

LIMIT = 2.0
"""Tolerated growth of a process, in MB a minute: in ten minutes less than a model's cache."""

WARM_UP = 0.35
"""Share of the time at the start that is ignored: pairs load, and the queue's memory of ended runs fills."""

BLOCKS = 12
"""Number of stretches after the warm-up; the line is fitted to the minimum of each, so that the momentary memory of an
export or a query does not count as growth."""

SAMPLE_S = 1.0
TICK_S = 0.2

DRAFTERS = {"embedded": ("none", "prompt_lookup", "early_exit:26"), "fake": ("none", "prompt_lookup", "model")}
SHAPES = ("chain:1", "chain:4", "chain:8", "s3_k2_d6", "s5_k1_d6", "s4_k4_d16")
RULES = ("lossless", "lossless", "lossless", "lenience:0.5", "spec_cascade:0.5")
PROMPTS = (
    "Repeat this text: the reading room on the second floor is open from Monday to Friday.",
    "Explain in a few sentences why the sky is blue.",
    "abc abc abc",
    'Markup </span><script>alert(1)</script> & "quotes" \U0001f600 \u202e',
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory at one moment in MB: of the app, of DuckDB's ``cache`` of the file within it, of the engine."""

    at_s: float
    app: float
    cache: float
    engine: float


class Sampler:
    """Samples the memory of both processes every second, in its own thread."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._begun = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.samples: list[Sample] = []
        self._thread.start()

    def stop(self) -> list[Sample]:
        """The samples so far."""
        self._over.set()
        self._thread.join()
        return self.samples

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._over.wait(SAMPLE_S):
            cache = self._cache()
            app = own.memory_info().rss
            at = time.monotonic() - self._begun
            self.samples.append(Sample(at, app / 1e6, cache / 1e6, _children(own) / 1e6))

    def _cache(self) -> int:
        with self._runs._database.read() as connection:
            return int(connection.exec_driver_sql("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").scalar_one())


def _children(own: psutil.Process) -> int:
    total = 0
    for child in own.children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.NoSuchProcess:  # a worker that has just ended
            continue
    return total


class Soak:
    """A user who starts run after run. ``done``: number of actions by kind; ``wrong``: sentences of failures."""

    def __init__(self, app: Services, kind: str, seed: int, until: float) -> None:
        self.app = app
        self.jobs = cast(Jobs, app.jobs)
        self.kind = kind
        self.dice = random.Random(seed)
        self.until = until
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []

    def work(self) -> None:
        """Acts until the time is over."""
        actions = (self.plainly, self.plainly, self.plainly, self.cancelled, self.raced, self.paused, self.history)
        while time.monotonic() < self.until:
            action = self.dice.choice(actions)
            action()
            self.done[action.__name__] += 1

    def plainly(self) -> None:
        """A run, watched to its end."""
        self.watch(self.jobs.submit(self.spec()), {"done"})

    def cancelled(self) -> None:
        """A run that is stopped after some rounds, or in the queue."""
        first, second = self.jobs.submit(self.spec(long=True)), self.jobs.submit(self.spec())
        rounds_first = self.dice.randrange(3)
        self.jobs.wait(first, lambda view: view.rounds >= rounds_first or view.status in TERMINAL, 300)
        for run_id in self.dice.sample((first, second), 2):
            self.jobs.cancel(run_id)
        self.watch(first, {"cancelled", "done"})
        self.watch(second, {"cancelled", "done"})

    def raced(self) -> None:
        """Two configurations side by side."""
        for run_id in self.jobs.submit_together([self.spec(), self.spec()]):
            self.watch(run_id, {"done"})

    def paused(self) -> None:
        """A run that is paused, stepped, overtaken by another one, then resumed or cancelled."""
        run_id = self.jobs.submit(self.spec(), paused=True)
        self.jobs.wait(run_id, lambda view: view.started is not None or view.status in TERMINAL, 300)
        for _ in range(3):
            self.jobs.step(run_id)
        self.plainly()
        if self.dice.random() < 0.7:
            self.jobs.resume(run_id)
        else:
            self.jobs.cancel(run_id)
        self.watch(run_id, {"done", "cancelled"})

    def history(self) -> None:
        """Lists, filters, single runs and an export, as History and Compare request them."""
        runs = self.app.runs
        assert runs is not None
        found = runs.list(RunFilter(text="text"), sort="tokens_per_second", limit=100, offset=self.dice.randrange(50))
        runs.count(RunFilter())
        runs.facets()
        for run in found[:5]:
            shown = find(self.app, run.run_id)
            assert shown is not None
            self.draw(run.run_id)
            runs.bursts(run.run_id)
        recent = RunFilter(since=datetime.now(UTC) - timedelta(minutes=1))  # as large at the end as at the start
        self.export(recent)

    def export(self, which: RunFilter) -> None:
        """An export in the background, as on History."""
        exports = self.app.exports
        assert exports is not None
        export_id = exports.start(which, self.dice.choice((*TABLES, None)), self.dice.choice(("csv", "parquet")))
        while (view := exports.view(export_id)) is not None and view.status == "running":
            time.sleep(TICK_S)
        if view is None or view.status != "ready" or not view.size:
            self.wrong.append(
                f"An export ended as {view.status if view else 'forgotten'}: {view.problem if view else ''}"
            )

    def watch(self, run_id: str, good: set[str]) -> None:
        """Reads the run as a page does, until it ends."""
        while True:
            self.draw(run_id)
            view = self.jobs.wait(run_id, timeout_s=TICK_S)
            if view is None or view.status in TERMINAL:
                break
        self.app.flush()
        shown = find(self.app, run_id)
        if shown is None or shown.status not in good:
            outcome = "is nowhere" if shown is None else f"ended as {shown.status}: {shown.error}"
            self.wrong.append(f"Run {run_id} {outcome}.")
        self.draw(run_id)
        self.done["runs"] += 1

    def draw(self, run_id: str) -> None:
        """Draws the last rounds of the run as HTML."""
        shown = find(self.app, run_id)
        if shown is None or not shown.total:
            return
        first = max(0, shown.total - 30)
        part = rounds(self.app, shown, first, 30)
        tokens.output(part, shown.plain)
        for block in trees.blocks(part):
            trees.rows(block, shown.plain)

    def spec(self, long: bool = False) -> RunSpec:
        """A random run."""
        drafter = parse_drafter(self.dice.choice(DRAFTERS[self.kind]))
        plain = isinstance(drafter, NoDrafter)
        temperature = self.dice.choice((0.0, 0.8))
        request = Request(
            prompt=self.dice.choice(PROMPTS),
            seed=self.dice.randrange(1000),
            sampling=Sampling(temperature=temperature),
            drafter=drafter,
            shape=NoShape() if plain else parse_shape(self.dice.choice(SHAPES)),
            rule=parse_rule("lossless" if plain else self.dice.choice(RULES)),
            stops=Stops(max_new_tokens=400 if long else self.dice.randrange(4, 48)),
        )
        return RunSpec(pair=PairSpec(), request=request)


def fit(at_s: Sequence[float], held: Sequence[float]) -> tuple[float, float]:
    """Growth in MB a minute by least squares over the minima of :data:`BLOCKS` stretches, and its standard error."""
    x = np.array([part.mean() for part in np.array_split(np.asarray(at_s) / 60, BLOCKS)])
    y = np.array([part.min() for part in np.array_split(np.asarray(held), BLOCKS)])
    design = np.stack([x, np.ones_like(x)], axis=1)
    (slope, intercept), *_ = np.linalg.lstsq(design, y, rcond=None)
    left = y - design @ np.array([slope, intercept])
    error = np.sqrt((left @ left) / (BLOCKS - 2) / ((x - x.mean()) @ (x - x.mean())))
    return float(slope), float(error)


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long, in minutes.")] = 10.0,
    fake: Annotated[bool, typer.Option(help="Table-driven models instead of the embedded one.")] = False,
    seed: Annotated[int, typer.Option(help="Of the dice.")] = 0,
) -> None:
    """Uses the app's services for some minutes and reports whether memory stayed flat."""
    if fake:
        os.environ["SPECLENS_LOADER"] = "tests.helpers.fakes:load_pair"
    with tempfile.TemporaryDirectory(prefix="speclens-soak-") as name:
        app = open_services(Path(name) / "speclens.duckdb", worker_command())
        assert app.runs is not None, app.trouble()
        soak = Soak(app, "fake" if fake else "embedded", seed, time.monotonic() + 60 * minutes)
        try:
            sampler = Sampler(app.runs)
            soak.work()
            samples = sampler.stop()
            if why := app.trouble():
                soak.wrong.append(why)
        finally:
            app.close()
    flat = _report(samples, soak, minutes)
    for sentence in soak.wrong[:20]:
        print(sentence)
    if not flat or soak.wrong:
        raise typer.Exit(1)


def _report(samples: Sequence[Sample], soak: Soak, minutes: float) -> bool:
    done = ", ".join(f"{count} {what}" for what, count in sorted(soak.done.items()))
    print(f"{minutes:g} minutes, {soak.kind} pair: {done}; {len(samples)} samples.\n")
    late = [sample for sample in samples if sample.at_s > WARM_UP * samples[-1].at_s]
    print("| process | after warm-up | at the end | most | growth | verdict |\n|---|---:|---:|---:|---:|---|")
    flat = True
    for name, title in (("app", "app"), ("engine", "engine")):
        held = [getattr(sample, name) for sample in late]
        slope, error = fit([sample.at_s for sample in late], held)
        grows = slope - 2 * error > LIMIT
        flat = flat and not grows
        verdict = "grows" if grows else "flat" if slope + 2 * error <= LIMIT else "flat as far as can be told"
        figures = (
            f"{held[0]:,.0f} MB | {held[-1]:,.0f} MB | {max(held):,.0f} MB | {slope:+.2f} ± {2 * error:.2f} MB/min"
        )
        print(f"| {title} | {figures} | {verdict} |")
    cache = " → ".join(f"{sample.cache:,.0f} MB" for sample in (late[0], late[-1]))
    print(f"\nOf the app's, DuckDB's cache of the file (bounded at 1 GB): {cache}.")
    return flat


if __name__ == "__main__":
    typer.run(main)
