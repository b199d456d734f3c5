from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from core.errors import BadInput, ModelUnavailable
from core.records import Ended, Event, Round, Started
from core.types import PairSpec, Request, RunSpec
from core.worker.open_run import Engine, OpenRun
from core.worker.protocol import Cancel, Loading, Pause, Resume, Run, RunEvent, Step
from core.worker.turns import PairCache, resolve
from tests.helpers.fakes_worker import FINGERPRINT, PREFILL_S, ROUND_S, Script, cycles, fake_round, load_pair

SPEC = Script(rounds=10).spec()
Cycles = Generator[tuple[Event, ...], None, None]


CANCEL, PAUSE, RESUME, STEP = Cancel(run_id="r"), Pause(run_id="r"), Resume(run_id="r"), Step(run_id="r")


class Opened:
    """A run that has the device to itself, and what it reported; ``steer`` may command it at every report."""

    def __init__(
        self,
        load: Any,
        engine: Engine,
        spec: RunSpec = SPEC,
        *,
        paused: bool = False,
        steer: Callable[[OpenRun, Loading | Event], None] = lambda run, report: None,
    ) -> None:
        self.loading: list[str] = []
        self.events: list[Event] = []
        self._steer = steer
        pairs = PairCache(load, lambda specs: None)
        self.run = OpenRun(Run(run_id="r", spec=spec, paused=paused), pairs, lambda: engine, self._report)

    def _report(self, report: Loading | RunEvent) -> None:
        if isinstance(report, Loading):
            self.loading.append(report.message)
        else:
            self.events.append(report.event)
        self._steer(self.run, report if isinstance(report, Loading) else report.event)

    @property
    def rounds(self) -> list[int]:
        return [event.index for event in self.events if isinstance(event, Round)]

    def while_due(self) -> None:
        while self.run.due:
            self.run.turn()

    def ended(self) -> Ended:
        while self.run.turn():
            pass
        last = self.events[-1]
        assert isinstance(last, Ended)
        return last


class Weights:
    """Something large; hangs in a cycle as modules of a network do, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("round_of_cancel", [0, 4])
def test_a_cancel_is_honoured_after_the_very_round_in_which_it_came(round_of_cancel: int) -> None:
    def steer(run: OpenRun, report: Loading | Event) -> None:
        if isinstance(report, Round) and report.index == round_of_cancel:
            run.apply(CANCEL)

    opened = Opened(load_pair, cycles, steer=steer)
    ended = opened.ended()
    assert opened.rounds == list(range(round_of_cancel + 1))
    assert ended.stop_reason == "cancelled"
    assert ended.e2e_s == PREFILL_S + (round_of_cancel + 1) * ROUND_S


def test_a_cancel_that_comes_with_the_last_round_leaves_a_run_that_ended_by_itself_alone() -> None:
    def steer(run: OpenRun, report: Loading | Event) -> None:
        if isinstance(report, Round) and report.index == 1:
            run.apply(CANCEL)

    assert Opened(load_pair, cycles, Script(rounds=2).spec(), steer=steer).ended().stop_reason == "max_new_tokens"


def test_a_loader_that_wraps_the_cancelling_exception_still_ends_the_run_as_cancelled() -> None:
    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> Any:
        try:
            progress("half", 0.5)
            progress("rest", 0.9)
        except Exception as error:
            raise ModelUnavailable("The pair could not be read.") from error

    def steer(run: OpenRun, report: Loading | Event) -> None:
        if isinstance(report, Loading) and report.message == "half":
            run.apply(CANCEL)

    opened = Opened(load, cycles, steer=steer)
    assert opened.ended() == Ended(0, "cancelled", "", 0.0)
    assert opened.loading == ["starting the engine …", "half"]


def test_a_run_that_begins_paused_reads_its_prompt_and_makes_a_round_per_step() -> None:
    opened = Opened(load_pair, cycles, paused=True)
    opened.while_due()
    assert [type(event) for event in opened.events] == [Started]
    for index in range(3):
        opened.run.apply(STEP)
        assert opened.run.due
        opened.run.turn()
        assert opened.rounds[-1] == index
        assert not opened.run.due


def test_a_step_goes_on_until_a_round_is_reported() -> None:
    """A round that a stop string may still cut is held back: the step would seem to do nothing."""

    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        yield ()
        yield fake_round(0), fake_round(1)
        yield (fake_round(2),)

    opened = Opened(load_pair, engine, paused=True)
    opened.while_due()
    opened.run.apply(STEP)
    opened.while_due()
    assert opened.rounds == [0, 1]


def test_pausing_drops_the_steps_that_were_not_made_and_a_run_that_is_not_paused_takes_none() -> None:
    opened = Opened(load_pair, cycles, paused=True)
    run = opened.run
    opened.while_due()
    for commands, due in (
        ([RESUME, STEP, PAUSE], False),
        ([STEP, STEP], True),
        ([PAUSE], False),
        ([RESUME], True),
        ([PAUSE], False),
        ([CANCEL], True),
    ):
        for command in commands:
            run.apply(command)
        assert run.due is due
    assert opened.ended().stop_reason == "cancelled"
    assert opened.rounds == []


def test_an_engine_that_stops_without_an_end_fails_the_run() -> None:
    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        yield (fake_round(0),)

    ended = Opened(load_pair, engine).ended()
    assert ended.stop_reason == "failed" and ended.text == "ab"
    assert ended.error is not None and ended.error.startswith("The engine stopped without saying how")


def test_torch_running_out_of_memory_on_either_device_says_what_to_lower() -> None:
    torch = pytest.importorskip("torch")
    cpu_message = (
        "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
    )
    for fault in (torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB.\nmore"), RuntimeError(cpu_message)):

        def engine(requests: Sequence[Request], pair: Any, fault: Exception = fault, **_: Any) -> Cycles:
            yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
            raise fault

        ended = Opened(load_pair, engine).ended()
        assert ended.error is not None and "Lower max new tokens" in ended.error and "\n" not in ended.error


def test_tensors_of_a_run_that_broke_are_gone_when_its_end_is_reported() -> None:
    alive: list[weakref.ref[Weights]] = []

    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        weights = Weights()
        alive.append(weakref.ref(weights))
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        raise MemoryError("no room")

    gc.disable()
    try:
        Opened(load_pair, engine).ended()
        assert alive[0]() is None
    finally:
        gc.enable()


def test_an_engine_or_loader_is_named_by_module_and_function() -> None:
    assert resolve("tests.helpers.fakes_worker:cycles") is cycles
    for name in ("cycles", "tests.helpers.fakes_worker:nothing", "tests.nothing:generate"):
        with pytest.raises(BadInput, match=r"names no function|can't be imported"):
            resolve(name)
