from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from core.errors import BadInput, ModelUnavailable
from core.protocol import Happening, Loading, RunRound
from core.records import Ended, Event, Started
from core.runner import PairCache, Runner, resolve
from core.types import PairSpec, Request
from tests.fakes_worker import FINGERPRINT, PREFILL_S, ROUND_S, Script, fake_round, generate, load_pair

SPEC = Script(rounds=10).spec()


def never() -> bool:
    return False


class Weights:
    """Something large; hangs in a cycle as modules of a network do, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_the_old_pair_is_freed_before_another_is_loaded() -> None:
    alive: list[weakref.ref[Weights]] = []

    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> Weights:
        assert all(reference() is None for reference in alive), "two pairs in memory"
        weights = Weights()
        alive.append(weakref.ref(weights))
        return weights

    cache = PairCache(load)
    for name in ("a", "b", "b", "a"):
        assert cache.get(PairSpec(name=name), lambda message, fraction: None) is alive[-1]()
    assert len(alive) == 3
    cache.clear()
    assert alive[-1]() is None


def test_a_pair_in_another_precision_is_another_pair() -> None:
    loaded: list[PairSpec] = []
    cache = PairCache(lambda spec, progress: loaded.append(spec))
    specs = [PairSpec(name="a"), PairSpec(name="a", precision="bfloat16"), PairSpec(name="a", precision="bfloat16")]
    for spec in specs:
        cache.get(spec, lambda message, fraction: None)
    assert loaded == specs[:2]


def test_a_loaded_pair_is_kept_out_of_later_collections() -> None:
    gc.unfreeze()
    cache = PairCache(lambda spec, progress: Weights())
    cache.get(PairSpec(), lambda message, fraction: None)
    assert gc.get_freeze_count() > 0
    cache.clear()
    assert gc.get_freeze_count() == 0


def test_a_pair_that_fails_to_load_leaves_the_cache_empty_and_can_be_tried_again() -> None:
    attempts = iter([ModelUnavailable("Not here."), None])

    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> str:
        if (fault := next(attempts)) is not None:
            raise fault
        return "pair"

    cache = PairCache(load)
    with pytest.raises(ModelUnavailable):
        cache.get(PairSpec(), lambda message, fraction: None)
    assert cache.get(PairSpec(), lambda message, fraction: None) == "pair"


@pytest.mark.parametrize("round_of_cancel", [0, 4])
def test_a_cancel_is_honoured_after_the_very_round_in_which_it_came(round_of_cancel: int) -> None:
    told: list[Happening] = []

    def cancelled() -> bool:
        return any(isinstance(happening, RunRound) and happening.round.index == round_of_cancel for happening in told)

    ended = Runner(load_pair, generate).run("r", SPEC, told.append, cancelled)
    assert sum(isinstance(happening, RunRound) for happening in told) == round_of_cancel + 1
    assert ended.stop_reason == "cancelled"
    assert ended.e2e_s == PREFILL_S + (round_of_cancel + 1) * ROUND_S


def test_a_cancel_that_comes_with_the_last_round_leaves_a_run_that_ended_by_itself_alone() -> None:
    told: list[Happening] = []

    def last_round_is_told() -> bool:
        return any(isinstance(happening, RunRound) and happening.round.index == 1 for happening in told)

    spec = Script(rounds=2).spec()
    ended = Runner(load_pair, generate).run("r", spec, told.append, last_round_is_told)
    assert last_round_is_told()
    assert ended.stop_reason == "max_new_tokens"


def test_a_loader_that_wraps_the_cancelling_exception_still_ends_the_run_as_cancelled() -> None:
    told: list[Happening] = []

    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> Any:
        try:
            progress("half", 0.5)
            progress("rest", 0.9)
        except Exception as error:
            raise ModelUnavailable("The pair could not be read.") from error

    ended = Runner(load, generate).run("r", SPEC, told.append, lambda: len(told) >= 2)
    assert [happening.message for happening in told if isinstance(happening, Loading)] == [
        "starting the engine …",
        "half",
    ]
    assert ended == Ended(0, "cancelled", "", 0.0)


def test_an_engine_that_stops_without_an_end_fails_the_run() -> None:
    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Iterator[Event]:
        yield Started(0, 1, 0.0, fingerprint=FINGERPRINT)
        yield fake_round(0)

    ended = Runner(load_pair, engine).run("r", SPEC, lambda happening: None, never)
    assert ended.stop_reason == "failed" and ended.text == "ab"
    assert ended.error is not None and ended.error.startswith("The engine stopped without saying how")


def test_torch_running_out_of_memory_on_either_device_says_what_to_lower() -> None:
    torch = pytest.importorskip("torch")
    cpu_message = (
        "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
    )
    for fault in (torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB.\nmore"), RuntimeError(cpu_message)):

        def engine(requests: Sequence[Request], pair: Any, fault: Exception = fault, **_: Any) -> Iterator[Event]:
            yield Started(0, 1, 0.0, fingerprint=FINGERPRINT)
            raise fault

        ended = Runner(load_pair, engine).run("r", SPEC, lambda happening: None, never)
        assert ended.error is not None and "Lower max new tokens" in ended.error and "\n" not in ended.error


def test_tensors_of_a_run_that_broke_are_gone_when_its_end_is_told() -> None:
    alive: list[weakref.ref[Weights]] = []

    def engine(requests: Sequence[Request], pair: Any, **_: Any) -> Iterator[Event]:
        weights = Weights()
        alive.append(weakref.ref(weights))
        yield Started(0, 1, 0.0, fingerprint=FINGERPRINT)
        raise MemoryError("no room")

    gc.disable()
    try:
        Runner(load_pair, engine).run("r", SPEC, lambda happening: None, never)
        assert alive[0]() is None
    finally:
        gc.enable()


def test_an_engine_or_loader_is_named_by_module_and_function() -> None:
    assert resolve("tests.fakes_worker:generate") is generate
    for name in ("generate", "tests.fakes_worker:nothing", "tests.nothing:generate"):
        with pytest.raises(BadInput, match=r"names no function|can't be imported"):
            resolve(name)
