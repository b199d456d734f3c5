"""Services for page tests: a queue whose runs stand where the test puts them, and a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from core.jobs.jobs import Jobs
from core.jobs.queue import JobView
from core.pairs.checks import Checks, CheckView
from core.pairs.description import Description
from core.pairs.inventory import Inventory, KnownPair
from core.pairs.memory import DeviceMemory
from core.pairs.presets import PairStatus
from core.records import TERMINAL, Fingerprint, Round, RunStatus, StopReason
from core.results.metrics import summarise
from core.types import Device, PairSpec, RunSpec
from pages.ui.kit.services import Services
from storage.export.background import Exports
from storage.queries import Runs, StoredRun
from storage.store import Store
from tests.helpers import sample

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION = "this-session"

PAIRS = (
    PairStatus("embedded", "SmolLM2-135M-Instruct", None, True, "", "Runs anywhere."),
    PairStatus("big", "org/big", "org/small", False, "org/big is not on this machine: download it.", ""),
)


@dataclass
class FakeJobs(Jobs):
    """Runs as the test lays them out; ``submitted``, ``races`` and ``steered`` record what a page asked for."""

    views: dict[str, JobView] = field(default_factory=dict)
    kept: dict[str, list[Round]] = field(default_factory=dict)
    submitted: list[RunSpec] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    races: list[tuple[list[str], bool]] = field(default_factory=list)
    """Ids that were submitted together, one alone included, and whether paused."""
    steered: list[tuple[str, str]] = field(default_factory=list)
    held: tuple[PairSpec, ...] = ()
    load_view: JobView | None = None
    loads: list[PairSpec] = field(default_factory=list)

    def put(self, view: JobView, rounds: Sequence[Round] = ()) -> JobView:
        """Lay a run out."""
        self.views[view.run_id] = view
        self.kept[view.run_id] = list(rounds)
        return view

    def submit(self, spec: RunSpec, *, paused: bool = False) -> str:
        return self.submit_together([spec], paused=paused)[0]

    def submit_together(self, specs: Sequence[RunSpec], *, paused: bool = False) -> list[str]:
        run_ids = []
        for spec in specs:
            self.submitted.append(spec)
            run_ids.append(f"{len(self.submitted):026d}")
            self.put(replace(queued(run_ids[-1], spec), paused=paused))
        self.races.append((run_ids, paused))
        return run_ids

    def view(self, run_id: str) -> JobView | None:
        return self.views.get(run_id)

    def rounds(self, run_id: str, start: int = 0) -> list[Round]:
        return self.kept.get(run_id, [])[start:]

    def active(self) -> list[JobView]:
        return [view for view in self.views.values() if view.status not in TERMINAL]

    def cancel(self, run_id: str) -> bool:
        self.cancelled.append(run_id)
        return True

    def pause(self, run_id: str) -> bool:
        return self._note("pause", run_id, True)

    def resume(self, run_id: str) -> bool:
        return self._note("resume", run_id, False)

    def step(self, run_id: str) -> bool:
        return self._note("step", run_id, True)

    def _note(self, what: str, run_id: str, paused: bool) -> bool:
        self.steered.append((what, run_id))
        self.views[run_id] = replace(self.views[run_id], paused=paused)
        return True

    def load(self, pair: PairSpec) -> str:
        self.loads.append(pair)
        return "load"

    def loading(self) -> JobView | None:
        return self.load_view

    def loaded(self) -> tuple[PairSpec, ...]:
        return self.held

    def unload(self) -> None:
        self.held = ()


LLAMA = Description(
    name="org/target",
    kind="llama",
    parameters=1_000_000_000,
    disk_bytes=2_000_000_000,
    packed_bytes=None,
    layers=16,
    heads=32,
    kv_heads=8,
    context=8192,
    vocabulary=128_256,
    cache_numbers=16 * 2 * 8 * 64,
    chat_template=True,
    int8_bytes=1_800_000_000,
)
SMALL = replace(
    LLAMA,
    name="org/draft",
    int8_bytes=150_000_000,
    parameters=100_000_000,
    disk_bytes=200_000_000,
    layers=4,
    cache_numbers=4096,
)
KNOWN = (
    KnownPair("embedded", "SmolLM2", None, True, "Runs anywhere.", "", (LLAMA,), None, False, False),
    KnownPair("big", "org/big", "org/small", True, "", "org/big is not here.", (), 16 * 10**9, False, True),
    KnownPair("org/target+org/draft", "org/target", "org/draft", False, "", "", (LLAMA, SMALL), None, False, False),
)


CPU = DeviceMemory("cpu", "CPU, 8 threads", 32 * 2**30, 16 * 2**30)


@dataclass
class FakeInventory(Inventory):
    """Known pairs and a device as the test lays them out; ``used`` is what the page named last."""

    pairs: tuple[KnownPair, ...] = KNOWN
    device: DeviceMemory = CPU
    used: Sequence[str] = ()

    def known(self, used: Sequence[str] = ()) -> tuple[KnownPair, ...]:
        self.used = used
        return self.pairs

    def forget(self) -> None:
        pass

    def memory(self, device: Device) -> DeviceMemory:
        return self.device


@dataclass
class FakeChecks(Checks):
    """Checks whose answers the test gives; ``started`` and ``stopped`` record what a page asked for."""

    views: dict[str, CheckView] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        self.started.append(name)

    def view(self, name: str) -> CheckView | None:
        return self.views.get(name)

    def stop(self, name: str) -> None:
        self.stopped.append(name)


class NoRuns:
    """A store without runs, or with the one plain run that a test gives it."""

    def __init__(self, plain: StoredRun | None = None) -> None:
        self.plain = plain

    def plain_for(self, fingerprint: Fingerprint, session: str) -> StoredRun | None:
        return self.plain if session == SESSION else None

    def get(self, run_id: str) -> StoredRun | None:
        return None

    def of_spec(self, spec: RunSpec, session: str) -> StoredRun | None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a page asked the store for {name}")


def fake_services(jobs: FakeJobs, runs: Any = None, why: str = "") -> Services:
    """Services around these jobs; without ``runs`` nothing is stored and ``why`` says so."""

    return Services(
        jobs,
        runs,
        SESSION,
        lambda: PAIRS,
        None,
        None,
        lambda: why,
        flush=lambda: None,
        close=lambda: None,
        inventory=FakeInventory(),
        checks=FakeChecks(),
    )


def stored_services(store: Store) -> Services:
    """Services around a real store, with an empty queue; waits until what was put into the store can be read."""
    store.flush()
    return replace(
        fake_services(FakeJobs(), Runs(store)),
        keeper=store,
        exports=Exports(store, store.path.parent / "exports"),
    )


def queued(run_id: str = sample.RUN_ID, spec: RunSpec | None = None, position: int = 1) -> JobView:
    """A run that waits."""
    return JobView(
        run_id=run_id,
        spec=spec or sample.spec(),
        status="queued",
        position=position,
        message="",
        progress=None,
        started=None,
        rounds=0,
        ended=None,
        summary=None,
        submitted_at=NOON,
        started_at=None,
        ended_at=None,
    )


def loading(message: str, progress: float, run_id: str = sample.RUN_ID) -> JobView:
    """A run whose pair is being loaded."""
    waiting = queued(run_id)
    return replace(waiting, status="running", position=0, message=message, progress=progress, started_at=NOON)


def running(rounds: Sequence[Round], spec: RunSpec | None = None, run_id: str = sample.RUN_ID) -> JobView:
    """A run that decodes."""
    view = replace(queued(run_id, spec), status="running", position=0, rounds=len(rounds), started_at=NOON)
    return replace(view, started=sample.started())


def over(
    rounds: Sequence[Round],
    spec: RunSpec | None = None,
    status: RunStatus = "done",
    reason: StopReason = "eos",
    error: str | None = None,
    run_id: str = sample.RUN_ID,
) -> JobView:
    """A run that ended."""
    ended = sample.ended(rounds, reason, error)
    return replace(
        running(rounds, spec, run_id),
        status=status,
        ended=ended,
        summary=summarise(sample.started(), rounds, ended),
        ended_at=NOON + timedelta(seconds=3),
    )


def keep(store: Store, run_id: str, rounds: Sequence[Round], spec: RunSpec | None = None, after_s: float = 0.0) -> None:
    """Hand in a done run of these rounds, submitted ``after_s`` seconds after noon."""
    at = NOON + timedelta(seconds=after_s)
    ended = sample.ended(rounds)
    store.submitted(run_id, spec or sample.spec(), SESSION, at)
    store.started(run_id, sample.started(), at)
    store.rounds(run_id, rounds)
    store.ended(run_id, ended, summarise(sample.started(), rounds, ended), at + timedelta(seconds=2))


def open_store(folder: Path) -> Store:
    """A store in a folder of its own."""
    return Store(folder / "speclens.duckdb")
