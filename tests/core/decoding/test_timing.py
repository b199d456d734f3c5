"""Stage times by an injected clock, exactly: every stage by its own reads, the consumer's time never among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pytest

import core.decoding.engine
import core.decoding.request_state
from core.cache.kv import SlotCache
from core.decoding.engine import cycles, generate
from core.decoding.timing import Laps, RunClock
from core.records import Ended, Event, Round, Started
from core.results.metrics import summarise, violations
from core.types import ChainShape, NoDrafter, NoShape, PairSpec, Request, RunSpec, Sampling, SmallModelDrafter, Stops
from core.worker.protocol import Begin, Report, Run, RunEvent, Shutdown
from core.worker.turns import Turns
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import FakeStream, always, fake_pair


@dataclass
class Time:
    """A clock that only stands where it was put: work moves it by what it costs, in seconds."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def costs(self, seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, taking ``seconds`` of this clock."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return work(*args, **kwargs)

        return timed


MEASURE_S = 0.0625
"""Cost of measuring one round's distortion, seconds."""

TARGET_S, DRAFT_S, KEEP_S, TEXT_S, HELD_S = 8.0, 2.0, 0.5, 0.125, 1024.0
"""Cost of a target pass, a draft pass, committing a path in one cache, one token's text, and a slow consumer."""


def timed_pair(time: Time, monkeypatch: pytest.MonkeyPatch) -> Any:
    pair = fake_pair(always(0.0, 1.0, 0.0), always(0.0, 1.0, 0.0))
    pair.target.network.table = time.costs(TARGET_S, pair.target.network.table)
    pair.draft.network.table = time.costs(DRAFT_S, pair.draft.network.table)
    monkeypatch.setattr(SlotCache, "keep", time.costs(KEEP_S, SlotCache.keep))
    monkeypatch.setattr(FakeStream, "step", time.costs(TEXT_S, FakeStream.step))
    return pair


def slowly(events: Iterator[Event], time: Time) -> tuple[Started, list[Round], Ended]:
    """All events, of a consumer that takes ``HELD_S`` over each."""
    started, rounds, ended = None, [], None
    for event in events:
        time.now += HELD_S
        match event:
            case Started():
                started = event
            case Round():
                rounds.append(event)
            case Ended():
                ended = event
    assert started is not None and ended is not None
    return started, rounds, ended


def test_a_chain_of_three_books_every_second_to_the_stage_that_spent_it(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    request = Request(
        prompt="ab",
        sampling=Sampling(temperature=0.0),
        stops=Stops(max_new_tokens=8),
        drafter=SmallModelDrafter(),
        shape=ChainShape(gamma=3),
    )
    started, rounds, ended = slowly(generate([request], pair, clock=time), time)

    # the table is asked once per scored row: one prompt token in each model's prefill; a target pass scores root + 3
    assert started.prefill_s == TARGET_S + DRAFT_S + 2 * KEEP_S
    assert [len(one.committed) for one in rounds] == [4, 4]
    # round 0 feeds the draft one pending token, then two candidates; round 1 feeds two, then two candidates
    assert [one.draft_s for one in rounds] == [3 * DRAFT_S, 4 * DRAFT_S]
    assert [one.verify_s for one in rounds] == [4 * TARGET_S, 4 * TARGET_S]
    assert [one.state_s for one in rounds] == [2 * KEEP_S, 2 * KEEP_S]
    assert [one.other_s for one in rounds] == [4 * TEXT_S, 4 * TEXT_S]
    for one in rounds:
        assert one.draft_s + one.verify_s + one.state_s + one.other_s == one.wall_s
    assert rounds[0].ended_at_s == started.prefill_s + rounds[0].wall_s
    assert rounds[1].ended_at_s == started.prefill_s + rounds[0].wall_s + rounds[1].wall_s
    assert ended.e2e_s == rounds[1].ended_at_s

    summary = summarise(started, rounds, ended)
    assert violations(summary, rounds) == []
    assert summary.decode_s == summary.e2e_s - summary.prefill_s == rounds[0].wall_s + rounds[1].wall_s
    assert summary.ttft_s == rounds[0].ended_at_s
    assert summary.tpot_s == rounds[1].wall_s / 7
    assert summary.tokens_per_second == 8 / summary.decode_s
    assert (summary.gap_p50_s, summary.gap_max_s) == (0.0, rounds[1].wall_s)


def test_each_lane_of_a_race_counts_only_its_own_compute(monkeypatch):
    """Beside a lane whose passes take a thousand times as long, and a consumer that is slow as well."""
    time = Time()
    quick, slow = timed_pair(time, monkeypatch), timed_pair(time, monkeypatch)
    slow.target.network.table = time.costs(1000 * TARGET_S, slow.target.network.table)
    request = Request(
        prompt="ab",
        sampling=Sampling(temperature=0.0),
        stops=Stops(max_new_tokens=16),
        drafter=SmallModelDrafter(),
        shape=ChainShape(gamma=3),
    )

    def raced(*names: str) -> dict[str, list[Event]]:
        events: dict[str, list[Event]] = {name: [] for name in names}

        def take(report: Report) -> None:
            time.now += HELD_S
            if isinstance(report, RunEvent):
                events[report.run_id].append(report.event)
            if all(of and isinstance(of[-1], Ended) for of in events.values()):
                turns.send(Shutdown())

        pairs = {"quick": quick, "slow": slow}
        turns = Turns(lambda spec, progress: pairs[spec.name], partial(cycles, clock=time), take)
        specs = {name: RunSpec(pair=PairSpec(name=name), request=request) for name in names}
        turns.send(Begin(runs=tuple(Run(run_id=name, spec=spec) for name, spec in specs.items())))
        turns.serve()
        return events

    def times(events: list[Event]) -> list[object]:
        rounds = [replace(one, nodes=(), positions=()) for one in events if isinstance(one, Round)]
        prefill = [one.prefill_s for one in events if isinstance(one, Started)]
        end = [one.e2e_s for one in events if isinstance(one, Ended)]
        assert len(rounds) == 4 and len(prefill) == len(end) == 1
        return [*prefill, *rounds, *end]

    together = raced("quick", "slow")
    assert times(together["quick"]) == times(raced("quick")["quick"])
    assert times(together["slow"]) == times(raced("slow")["slow"])


def test_plain_decoding_spends_no_draft_time(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    request = Request(prompt="ab", stops=Stops(max_new_tokens=2), drafter=NoDrafter(), shape=NoShape())
    started, rounds, _ = slowly(generate([request], pair, clock=time), time)
    assert started.prefill_s == TARGET_S + KEEP_S
    stages = [(one.draft_s, one.verify_s, one.state_s, one.other_s, one.wall_s) for one in rounds]
    assert stages == [(0.0, TARGET_S, KEEP_S, TEXT_S, TARGET_S + KEEP_S + TEXT_S)] * 2


def test_other_time_is_measured_by_its_own_clock_reads_and_not_as_a_remainder():
    """Reads of the clock advance by 1, 2, 4, 8, …: every stage is the one power of two between its own borders."""
    readings = count()
    request = Request(prompt="ab", stops=Stops(max_new_tokens=1))
    pair: Any = fake_pair(always(1.0, 0.0, 0.0))
    events = generate([request], pair, clock=lambda: float(2 ** next(readings)))
    started, one, ended = list(events)
    assert isinstance(started, Started)
    assert isinstance(one, Round)
    assert isinstance(ended, Ended)
    # read 0 accepts the request, 1–2 set up, 3 has read the prompt, 4–5 the consumer holds Started, 6 begins the round,
    # 7–10 end its stages; what lies between prompt and round is other
    between = 2.0**6 - 2.0**3 - (2.0**5 - 2.0**4)
    assert (one.draft_s, one.verify_s, one.state_s, one.other_s) == (2.0**6, 2.0**7, 2.0**8, 2.0**9 + between)
    assert one.wall_s == 2.0**10 - 2.0**6 + between
    assert started.prefill_s == 2.0**3 - 2.0**0 - (2.0**2 - 2.0**1)
    assert one.ended_at_s == started.prefill_s + one.wall_s


def test_the_runs_clock_stands_still_while_distortion_is_measured_and_the_cost_is_known_apart(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    monkeypatch.setattr(
        core.decoding.request_state, "measure", time.costs(MEASURE_S, core.decoding.request_state.measure)
    )
    request = Request(
        prompt="ab",
        sampling=Sampling(temperature=0.0),
        stops=Stops(max_new_tokens=8),
        drafter=SmallModelDrafter(),
        shape=ChainShape(gamma=3),
    )
    started, rounds, ended = slowly(generate([request], pair, clock=time), time)
    assert [one.distortion_s for one in rounds] == [MEASURE_S] * 2
    assert [one.other_s for one in rounds] == [4 * TEXT_S] * 2
    assert [one.state_s for one in rounds] == [2 * KEEP_S] * 2
    summary = summarise(started, rounds, ended)
    assert summary.distortion_s == 2 * MEASURE_S
    assert violations(summary, rounds) == []
    silent = request.model_copy(update={"measure_distortion": False})
    _, unmeasured, _ = slowly(generate([silent], pair, clock=time), time)
    assert [(one.distortion_s, one.other_s) for one in unmeasured] == [(None, 4 * TEXT_S)] * 2
    assert [(one.wall_s, one.ended_at_s) for one in unmeasured] == [(one.wall_s, one.ended_at_s) for one in rounds]


def test_a_batch_shares_the_stage_times_of_its_common_pass(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    request = Request(prompt="ab", stops=Stops(max_new_tokens=1))
    events = [event for event in generate([request, request], pair, clock=time) if isinstance(event, Round)]
    assert [one.verify_s for one in events] == [2 * TARGET_S] * 2
    assert [one.state_s for one in events] == [2 * KEEP_S] * 2


def test_setting_up_is_over_before_the_clock_starts_whatever_drafts(monkeypatch):
    for drafter, shape in [("none", "none"), ("model", "chain:2"), ("prompt_lookup", "s2_k2_d5")]:
        time = Time()
        pair = timed_pair(time, monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(core.decoding.engine, "assemble", time.costs(512.0, core.decoding.engine.assemble))
            run = decode(ask("ab", drafter, shape, max_new_tokens=3), pair, clock=time)
        assert run.summary.e2e_s < 512.0


def test_what_happens_between_two_rounds_is_other_of_the_later_one(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    state = core.decoding.request_state.RequestState
    monkeypatch.setattr(state, "released", time.costs(64.0, state.released))
    first, second = decode(ask("ab", max_new_tokens=2), pair, clock=time).rounds
    assert (first.other_s, second.other_s) == (TEXT_S, TEXT_S + 64.0)


def test_the_prompts_of_a_batch_are_the_prefill_of_each(monkeypatch):
    time = Time()
    pair = timed_pair(time, monkeypatch)
    runs = decode_all([ask("ab", max_new_tokens=1), ask("abab", max_new_tokens=2)], pair, clock=time)
    assert [one.started.prefill_s for one in runs] == [4 * TARGET_S + 2 * KEEP_S] * 2
    assert [one.summary.decode_s for one in runs] == [sum(r.wall_s for r in one.rounds) for one in runs]


def test_a_clock_stands_still_while_its_consumer_holds_the_generator():
    time = Time()
    clock = RunClock(time)
    time.now += 3.0
    with clock.suspended():
        time.now += 100.0
    time.now += 4.0
    assert clock.now() == 7.0


def test_a_consumer_that_raises_leaves_the_clock_suspended_for_its_time_alone():
    time = Time()
    clock = RunClock(time)
    with pytest.raises(KeyError), clock.suspended():
        time.costs(100.0, {}.__getitem__)("absent")
    time.now += 1.0
    assert clock.now() == 1.0


def test_laps_of_one_stage_add_up():
    time = Time()
    laps = Laps(RunClock(time), 0.0)
    for stage, seconds in (("draft", 1.0), ("verify", 2.0), ("draft", 4.0), ("other", 8.0)):
        time.now += seconds
        laps.lap(stage)  # type: ignore[arg-type]
    assert laps.seconds == {"draft": 5.0, "verify": 2.0, "state": 0.0, "other": 8.0}
    assert laps.wall == 15.0
