"""Pairs in memory: those that open runs use, and no others once another pair is loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from core.errors import ModelUnavailable
from core.types import PairSpec
from core.worker.turns import PairCache


class Weights:
    """Something large; hangs in a cycle as modules of a network do, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


class Loads:
    """A loader that keeps count of what it loaded and of what is still in memory."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.at_load: list[list[str]] = []
        self._alive: list[tuple[str, weakref.ref[Weights]]] = []

    def __call__(self, spec: PairSpec, progress: Callable[[str, float], None]) -> Weights:
        self.at_load.append(self.alive)
        weights = Weights()
        self.names.append(spec.name)
        self._alive.append((spec.name, weakref.ref(weights)))
        return weights

    @property
    def alive(self) -> list[str]:
        return [name for name, reference in self._alive if reference() is not None]


def quiet(message: str, fraction: float) -> None:
    pass


def ignored(pairs: tuple[PairSpec, ...]) -> None:
    pass


def use(cache: PairCache, name: str, run: str) -> None:
    cache.get(PairSpec(name=name), run, quiet)


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_pair_that_no_run_uses_stays_until_another_is_loaded_and_is_freed_before() -> None:
    loads = Loads()
    cache = PairCache(loads, ignored)
    for run, name in enumerate(("a", "b", "b", "a")):
        use(cache, name, str(run))
        cache.release(str(run))
    assert loads.names == ["a", "b", "a"]
    assert loads.at_load == [[], [], []]
    cache.unload()
    assert loads.alive == []


def test_every_pair_that_an_open_run_uses_stays() -> None:
    loads = Loads()
    cache = PairCache(loads, ignored)
    use(cache, "a", "1")
    use(cache, "b", "2")
    use(cache, "a", "3")
    assert loads.names == ["a", "b"]
    cache.release("2")
    use(cache, "c", "4")
    assert loads.at_load[-1] == ["a"]
    cache.release("1")
    use(cache, "d", "5")
    assert loads.at_load[-1] == ["a", "c"]
    cache.release("3")
    cache.release("4")
    use(cache, "e", "6")
    assert loads.at_load[-1] == ["d"]


def test_unloading_frees_a_pair_in_use_after_its_run_unless_another_wants_it_meanwhile() -> None:
    loads = Loads()
    cache = PairCache(loads, ignored)
    use(cache, "a", "1")
    use(cache, "b", "2")
    cache.unload()
    assert loads.alive == ["a", "b"]
    use(cache, "b", "3")
    cache.release("1")
    cache.release("2")
    cache.release("3")
    assert loads.alive == ["b"]


def test_a_pair_in_another_precision_is_another_pair() -> None:
    loaded: list[PairSpec] = []
    cache = PairCache(lambda spec, progress: loaded.append(spec), ignored)
    specs = [PairSpec(name="a"), PairSpec(name="a", precision="bfloat16"), PairSpec(name="a", precision="bfloat16")]
    for spec in specs:
        cache.get(spec, "r", quiet)
    assert loaded == specs[:2]


def test_a_loaded_pair_is_kept_out_of_later_collections_and_an_open_runs_caches_are_not() -> None:
    cache = PairCache(Loads(), ignored)
    use(cache, "a", "1")
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
    use(cache, "b", "2")
    assert gc.get_freeze_count() == 0
    cache.release("1")
    assert gc.get_freeze_count() == 0
    cache.release("2")
    assert gc.get_freeze_count() > 0
    cache.unload()
    assert gc.get_freeze_count() == 0


def test_a_pair_that_fails_to_load_leaves_the_others_alone_and_can_be_tried_again() -> None:
    attempts = iter(["one", ModelUnavailable("Not here."), "two"])

    def load(spec: PairSpec, progress: Callable[[str, float], None]) -> str:
        made = next(attempts)
        if isinstance(made, Exception):
            raise made
        return made

    cache = PairCache(load, ignored)
    assert cache.get(PairSpec(name="a"), "1", quiet) == "one"
    with pytest.raises(ModelUnavailable):
        cache.get(PairSpec(name="b"), "2", quiet)
    cache.release("2")
    assert cache.get(PairSpec(name="b"), "3", quiet) == "two"
    assert cache.get(PairSpec(name="a"), "4", quiet) == "one"


def test_every_change_is_reported_with_the_pairs_that_are_left() -> None:
    reported: list[list[str]] = []
    cache = PairCache(Loads(), lambda pairs: reported.append([pair.name for pair in pairs]))
    use(cache, "a", "1")
    use(cache, "b", "2")
    use(cache, "a", "3")
    assert reported == [["a"], ["a", "b"]]
    cache.release("2")
    use(cache, "c", "4")
    assert reported[2:] == [["a"], ["a", "c"]]
    cache.unload()
    assert len(reported) == 4
    for run in "134":
        cache.release(run)
    assert reported[4:] == [["c"], []]
