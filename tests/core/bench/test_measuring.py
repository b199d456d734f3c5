"""Turns and rows from contenders whose speed and words are given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from core.bench import measuring
from core.bench.agreement import NearTie
from core.bench.contender import Answer, Workload
from core.bench.machine import Peak
from core.bench.measuring import Series, measure, schedule
from core.bench.rows import rows, show
from core.bench.settings import Setting
from core.errors import EngineFault
from core.types import PromptLookupDrafter

PLAIN = Setting()
LOOKUP = Setting(PromptLookupDrafter(), 4)


@pytest.fixture(autouse=True)
def uncollected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting the garbage of the whole test process takes longer than all these tests."""
    monkeypatch.setattr(measuring, "gc", SimpleNamespace(collect=lambda: None))


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scripted:
    """Takes these seconds in its turns, first the untimed one, and says ``output`` to every prompt."""

    peer: str | None
    clock: Clock
    seconds: list[float]
    output: tuple[int, ...] = (7, 8, 9, 2)
    rounds: int | None = None
    decode_s: float | None = None
    forward_s: float | None = None
    alone: bool = False
    raises: Exception | None = None
    log: list[tuple[str | None, str, bool]] = field(default_factory=list)
    _turn: int = 0

    def unsupported(self, setting: Setting) -> str:
        return "no batches" if self.alone and setting.batch > 1 else ""

    @contextmanager
    def ready(self, workload: Workload, watched: bool) -> Iterator[Callable[[], Answer]]:
        self.clock.now += 1000.0  # preparing is not timed
        yield lambda: self._decode(workload, watched)

    def _decode(self, workload: Workload, watched: bool) -> Answer:
        self.log.append((self.peer, workload.setting.name, watched))
        if self.raises:
            raise self.raises
        self.clock.now += self.seconds[self._turn]
        self._turn += 1
        return Answer((self.output,) * len(workload.prompts), self.rounds, self.decode_s, self.forward_s)


class Ties:
    """Judges every difference as near-tie or not."""

    def __init__(self, near: bool) -> None:
        self.near = near

    def check(self, prompt, ours, theirs, who):
        if ours == theirs:
            return None
        if not self.near:
            raise EngineFault(f"{who} differs.")
        return NearTie(1, (ours[1], theirs[1]), 1e-4)


@contextmanager
def no_peak() -> Iterator[Peak]:
    yield Peak("process_rss", 5 << 20)


def workload(setting: Setting, prompt: int = 5) -> Workload:
    ids = tuple((prompt + n,) for n in range(setting.batch))
    return Workload(setting, (), ids, 4)


def run(
    contenders, settings=(PLAIN,), runs: int = 3, near: bool = False, progress=lambda message: None
) -> list[Series]:
    return measure(
        {one: [workload(one)] for one in settings},
        contenders,
        schedule(runs, cuda=False),
        Ties(near),
        clock=contenders[0].clock,
        peak=no_peak,
        progress=progress,
    )


def test_every_turn_takes_all_settings_and_another_contender_begins():
    clock, log = Clock(), []
    two = [Scripted(name, clock, [1.0] * 8, log=log) for name in (None, "transformers")]
    run(two, (PLAIN, LOOKUP), runs=2)
    lookup = "prompt_lookup chain:4"
    assert log == [
        (None, "plain", True),
        ("transformers", "plain", True),
        (None, lookup, True),
        ("transformers", lookup, True),
        ("transformers", "plain", False),
        (None, "plain", False),
        ("transformers", lookup, False),
        (None, lookup, False),
        (None, "plain", False),
        ("transformers", "plain", False),
        (None, lookup, False),
        ("transformers", lookup, False),
    ]


def test_on_cuda_one_more_turn_is_watched_and_not_timed():
    assert [(one.timed, one.watched) for one in schedule(2, cuda=True)] == [
        (False, True),
        (True, False),
        (True, False),
        (False, True),
    ]


def test_ratios_are_medians_of_the_turns_ratios_and_the_first_turn_only_warms_up():
    clock = Clock()
    ours = Scripted(None, clock, [99.0, 1.0, 2.0, 4.0], rounds=2, decode_s=2.0, forward_s=1.5)
    theirs = Scripted("transformers", clock, [99.0, 4.0, 2.0, 1.0], rounds=4)
    same = Scripted("same", clock, [99.0, 1.0, 1.0, 2.0])
    ours_row, row, _ = rows(run([ours, theirs, same]), {1: 1}, "transformers", "same")
    assert (ours_row.tokens_per_second, ours_row.spread, ours_row.runs) == (2.0, (1.0, 4.0), 3)
    assert (ours_row.ratio_to_assisted, ours_row.ratio_to_assisted_spread) == (1.0, (0.25, 4.0))
    assert (ours_row.ratio_same_linears, ours_row.ratio_same_linears_spread) == (0.5, (0.5, 1.0))
    assert (ours_row.tokens_per_round, ours_row.outside_forward_share) == (2.0, 0.25)
    assert (ours_row.peak_bytes, ours_row.peak_kind, ours_row.tokens) == (5 << 20, "process_rss", 4)
    assert (row.name, row.ratio_to_assisted, row.ratio_of_ours, row.tokens_per_round) == (
        "plain, transformers",
        None,
        1.0,
        1.0,
    )


def test_a_peer_skips_a_setting_that_it_does_not_support():
    clock = Clock()
    batched = Setting(batch=2)
    ours = Scripted(None, clock, [1.0] * 4)
    peer, said = Scripted("transformers", clock, [1.0] * 4, alone=True), list[str]()
    series = run([ours, peer], (batched,), progress=said.append)
    assert said[0] == "left out: no batches"
    (row,) = rows(series, {2: 2}, "transformers", "same")
    assert (row.name, row.tokens, row.ratio_to_assisted) == ("plain batch 2", 8, None)


def test_a_near_tie_is_in_the_row_and_the_ratios_remain():
    clock = Clock()
    series = run([Scripted(None, clock, [1.0] * 4), Scripted("x", clock, [2.0] * 4, output=(7, 5, 9, 2))], near=True)
    _, row = rows(series, {1: 1}, "x", "same")
    assert [tie.position for tie in row.near_ties] == [1]
    assert (row.error, row.ratio_of_ours) == ("", 2.0)


def test_another_output_is_an_error_row_without_a_ratio_and_is_measured_no_further():
    clock = Clock()
    peer = Scripted("x", clock, [1.0] * 4, output=(7, 5, 9, 2))
    ours, row = rows(run([Scripted(None, clock, [1.0] * 4), peer]), {1: 1}, "x", "same")
    assert (row.error, row.runs, len(peer.log)) == ("x differs.", 0, 1)
    assert (ours.error, ours.runs, ours.ratio_to_assisted) == ("", 3, None)


def test_drafting_that_changes_our_own_output_is_an_error_of_ours():
    clock = Clock()

    class Astray(Scripted):
        def _decode(self, workload: Workload, watched: bool) -> Answer:
            self.output = (7, 5) if workload.setting.gamma else (7, 8)
            return super()._decode(workload, watched)

    plain, drafted = rows(run([Astray(None, clock, [1.0] * 8)], (PLAIN, LOOKUP)), {1: 1}, "x", "same")
    assert plain.error == ""
    assert drafted.error == "prompt_lookup chain:4 differs."


def test_a_peer_that_breaks_is_an_error_row_and_the_others_go_on():
    clock = Clock()
    peer = Scripted("x", clock, [], raises=IndexError("no such layer\nand more"))
    ours, row = rows(run([Scripted(None, clock, [1.0] * 4), peer]), {1: 1}, "x", "same")
    assert row.error == "x failed (IndexError: no such layer)."
    assert (row.tokens_per_second, row.spread, ours.runs) == (None, None, 3)


def test_an_error_of_our_own_code_is_raised_unchanged():
    clock = Clock()
    with pytest.raises(ZeroDivisionError):
        run([Scripted(None, clock, [], raises=ZeroDivisionError())])


def test_rows_are_json_and_the_table_shows_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    clock = Clock()
    ours = Scripted(None, clock, [1.0, 1.0, 2.0, 4.0], rounds=2, decode_s=2.0, forward_s=1.9)
    found = rows(run([ours, Scripted("x", clock, [2.0] * 4, output=(7, 5))], near=True), {1: 1}, "x", "same")
    plain = json.loads(json.dumps(found[0].plain(), allow_nan=False))
    assert {"name", "tokens_per_second", "spread", "runs", "ratio_to_assisted", "ratio_same_linears"} <= set(plain)
    assert {"tokens_per_round", "outside_forward_share", "peak_bytes", "near_ties", "batch", "gamma"} <= set(plain)
    show(found, {"cpu": "a fast one", "threads": "2"})
    out = capsys.readouterr().out
    assert "2.0" in out
    assert "5.0%" in out
    assert "plain, x: near-tie at new token 1 of prompt 0, tokens 8 and 5 within 0.0001; equal up to there." in out
    assert "cpu a fast one, threads 2" in out
    assert "Medians over interleaved runs (3)" in out
