from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from core.errors import BadInput, ModelUnavailable
from core.records import Ended, Event, Started
from core.types import PairSpec, Request, RunSpec
from core.worker.open_run import Engine, OpenRun
from core.worker.protocol import Happening, Loading, Run, RunRound, RunStarted
from core.worker.runner import Runner, resolve
from core.worker.steering import Steering
from tests.helpers.fakes_worker import FINGERPRINT, PREFILL_S, ROUND_S, Script, cycles, fake_round, load_pair

SPEC = Script(rounds=10).spec()
Cycles = Generator[tuple[Event, ...], None, None]


def ran(
    load: Any, engine: Engine, spec: RunSpec = SPEC, tell: Callable[[Happening, OpenRun], None] = lambda *_: None
) -> Ended:
    """The end of a run that has the device to itself; ``tell`` may steer it."""
    run = Runner(load, engine).open(Run(run_id="r", spec=spec), lambda happening: tell(happening, run))
    while (ended := run.turn()) is None:
        pass
    return ended


class Weights:
    """Something large; hangs in a cycle as modules of a network do, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("round_of_cancel", [0, 4])
def test_a_cancel_is_honoured_after_the_very_round_in_which_it_came(round_of_cancel: int) -> None:
    told: list[int] = []

    def tell(happening: Happening, run: OpenRun) -> None:
        if isinstance(happening, RunRound):
            told.append(happening.round.index)
            if happening.round.index == round_of_cancel:
                run.steering.cancel()

    ended = ran(load_pair, cycles, tell=tell)
    assert told == list(range(round_of_cancel + 1))
    assert ended.stop_reason == "cancelled"
    assert ended.e2e_s == PREFILL_S + (round_of_cancel + 1) * ROUND_S


def test_a_cancel_that_comes_with_the_last_round_leaves_a_run_that_ended_by_itself_alone() -> None:
    def tell(happening: Happening, run: OpenRun) -> None:
        if isinstance(happening, RunRound) and happening.round.index == 1:
            run.steering.cancel()

    assert ran(load_pair, cycles, Script(rounds=2).spec(), tell).stop_reason == "max_new_tokens"


def test_a_loader_that_wraps_the_cancelling_exception_still_ends_the_run_as_cancelled() -> None:
    told: list[Happening] = []

    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> Any:
        try:
            progress("half", 0.5)
            progress("rest", 0.9)
        except Exception as error:
            raise ModelUnavailable("The pair could not be read.") from error

    def tell(happening: Happening, run: OpenRun) -> None:
        told.append(happening)
        if len(told) == 2:
            run.steering.cancel()

    ended = ran(load, cycles, tell=tell)
    assert [happening.message for happening in told if isinstance(happening, Loading)] == [
        "starting the engine …",
        "half",
    ]
    assert ended == Ended(0, "cancelled", "", 0.0)


def test_a_run_that_begins_paused_reads_its_prompt_and_makes_a_round_per_step() -> None:
    told: list[Happening] = []
    run = Runner(load_pair, cycles).open(Run(run_id="r", spec=SPEC, paused=True), told.append)
    while run.due:
        run.turn()
    assert isinstance(told[-1], RunStarted)
    for index in range(3):
        run.steering.step()
        assert run.due
        run.turn()
        assert isinstance(told[-1], RunRound) and told[-1].round.index == index
        assert not run.due


def test_a_step_goes_on_until_a_round_is_told() -> None:
    """A round that a stop string may still cut is held back: the step would seem to do nothing."""

    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        yield ()
        yield fake_round(0), fake_round(1)
        yield (fake_round(2),)

    told: list[Happening] = []
    run = Runner(load_pair, engine).open(Run(run_id="r", spec=SPEC, paused=True), told.append)
    while run.due:
        run.turn()
    run.steering.step()
    while run.due:
        run.turn()
    assert [happening.round.index for happening in told if isinstance(happening, RunRound)] == [0, 1]


def test_pausing_forgets_the_steps_that_were_not_made_and_a_run_that_is_not_paused_takes_none() -> None:
    steering = Steering()
    steering.step()
    steering.pause()
    assert steering.stands
    steering.step()
    steering.step()
    steering.stepped()
    assert not steering.stands
    steering.pause()
    assert steering.stands
    steering.resume()
    assert not steering.stands
    steering.pause()
    steering.cancel()
    assert not steering.stands and steering.cancelled


def test_an_engine_that_stops_without_an_end_fails_the_run() -> None:
    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        yield (fake_round(0),)

    ended = ran(load_pair, engine)
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

        ended = ran(load_pair, engine)
        assert ended.error is not None and "Lower max new tokens" in ended.error and "\n" not in ended.error


def test_tensors_of_a_run_that_broke_are_gone_when_its_end_is_told() -> None:
    alive: list[weakref.ref[Weights]] = []

    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Cycles:
        weights = Weights()
        alive.append(weakref.ref(weights))
        yield (Started(0, 1, 0.0, fingerprint=FINGERPRINT),)
        raise MemoryError("no room")

    gc.disable()
    try:
        ran(load_pair, engine)
        assert alive[0]() is None
    finally:
        gc.enable()


def test_an_engine_or_loader_is_named_by_module_and_function() -> None:
    assert resolve("tests.helpers.fakes_worker:cycles") is cycles
    for name in ("cycles", "tests.helpers.fakes_worker:nothing", "tests.nothing:generate"):
        with pytest.raises(BadInput, match=r"names no function|can't be imported"):
            resolve(name)
