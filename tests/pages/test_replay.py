"""Replay: at every round what streamed at that round, by the same drawing; moving, playing, and its ends."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from core.records import Round
from core.results.metrics import progress, summarise
from pages.ui.history import replay, tape
from pages.ui.history.tape import Tape
from pages.ui.kit.runs import of_stored
from pages.ui.kit.services import Services
from pages.ui.rounds import run_view
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

PATTERNS = (["accepted", "rejected"], ["accepted"] * 3, ["rejected", "unreached"], [])
ROUNDS = [sample.chain(PATTERNS[i % 4], i, text=f" w{i}") if i % 4 < 3 else sample.plain(i) for i in range(40)]  # type: ignore[arg-type]
RUN = sample.RUN_ID
CHIP = re.compile(r'<span class="sl-chip sl-(\w+)".*?aria-label="(.*?)">(.*?)</span>', re.DOTALL)
CARD = re.compile(r'data-metric="(\w+)".*?<dd>(.*?)</dd>')


@pytest.fixture
def app(store: Store) -> Services:
    """One stored run of forty rounds."""
    fake_app.keep(store, RUN, ROUNDS)
    return fake_app.stored_services(store)


def opened(open_page: Open, app: Services) -> AppTest:
    """The run's replay."""
    at = open_page("history", app, run=RUN, show="replay")
    assert not at.exception
    return at


def go(at: AppTest, count: int) -> AppTest:
    """Move the slider."""
    at.slider(key=f"replay_at_{RUN}").set_value(count).run()
    assert not at.exception
    return at


def drawn(at: AppTest) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]], list[str]]:
    """Chips with fate, tip and text; metrics with their values; the output's text."""
    found = html(at)
    return CHIP.findall(found), CARD.findall(found), re.findall(r'aria-label="Output">(.*?)</div>', found, re.DOTALL)


@pytest.mark.parametrize("count", [1, 7, 33, 39])
def test_the_replay_shows_at_a_round_what_streamed_at_that_round(open_page: Open, app: Services, count: int) -> None:
    replayed = drawn(go(opened(open_page, app), count))
    jobs = fake_app.FakeJobs()
    jobs.put(replace(fake_app.running(ROUNDS[:count]), paused=True), ROUNDS[:count])
    live = open_page("live", fake_app.fake_services(jobs, app.runs), run=RUN)
    assert not live.exception
    assert replayed == drawn(live)
    assert len(replayed[0]) > 0


def test_before_the_first_round_and_at_the_end_it_says_so(open_page: Open, app: Services) -> None:
    at = opened(open_page, app)
    assert 'data-replay="0"' in html(at)
    assert "waiting for the first token" in html(at)
    assert at.button(key="replay_first").disabled and at.button(key="replay_previous").disabled
    go(at, 40)
    assert "The end: stop, eos." in html(at)
    assert at.button(key="replay_next").disabled and at.button(key="replay_end").disabled


def test_steps_move_by_one_round_and_leaps_to_the_ends(open_page: Open, app: Services) -> None:
    at = opened(open_page, app)
    places = []
    for name in ("next", "next", "end", "previous", "first"):
        at.button(key=f"replay_{name}").click().run()
        places.append(re.findall(r'data-replay="(\d+)"', html(at))[0])
    assert places == ["1", "2", "40", "39", "0"]


def test_metrics_are_those_of_the_rounds_so_far_and_at_the_end_those_of_the_run(app: Services) -> None:
    assert app.runs is not None
    stored = app.runs.get(RUN)
    assert stored is not None
    run = of_stored(stored)
    reel = tape.of_run(app, run)
    assert reel is tape.of_run(app, run)  # read once
    for count in (0, 1, 17, 40):
        assert reel.shown(run, count).summary == progress(sample.started(), ROUNDS[:count])
    whole, now = summarise(sample.started(), ROUNDS, sample.ended(ROUNDS)), reel.shown(run, 40).summary
    assert now is not None
    assert replace(now, stop_reason=whole.stop_reason, peak_memory_bytes=whole.peak_memory_bytes,
                   peak_memory_kind=whole.peak_memory_kind) == whole  # fmt: skip


REEL = Tape(tuple(ROUNDS))
GAP_S = 0.043


@pytest.mark.parametrize(
    ("begun_at", "for_s", "speed", "count"),
    [
        (0, 0.0, "×1", 0),
        (0, GAP_S * 3.5, "×1", 3),
        (10, GAP_S * 3.5, "×1", 13),
        (10, GAP_S * 3.5, "×¼", 10),
        (10, GAP_S * 3.6, "×4", 24),
        (0, 1e9, "×1", 40),
        (5, 2.5, "5/s", 17),
        (5, 0.0, "100/s", 5),
        (5, 60.0, "1/s", 40),
    ],
)
def test_the_clock_says_how_many_rounds_are_over(begun_at: int, for_s: float, speed: str, count: int) -> None:
    assert replay.reached(REEL, begun_at, for_s, speed) == count


def test_playing_moves_on_by_the_clock_to_the_end_and_stops_there(
    open_page: Open, app: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    at = opened(open_page, app)
    at.selectbox(key=replay.SPEED).set_value("5/s").run()
    at.button(key="replay_play").click().run()
    assert at.button(key="replay_pause").label == "Pause"
    now[0] += 1.1
    at.run()
    assert 'data-replay="5"' in html(at)
    at.selectbox(key=replay.SPEED).set_value("20/s").run()
    now[0] += 1.0
    at.run()
    assert 'data-replay="25"' in html(at)  # another speed counts from where it was
    at.button(key="replay_pause").click().run()
    now[0] += 60.0
    at.run()
    assert 'data-replay="25"' in html(at)
    at.button(key="replay_play").click().run()
    now[0] += 60.0
    at.run()
    assert 'data-replay="40"' in html(at)
    assert at.button(key="replay_play").label == "Play"
    at.button(key="replay_play").click().run()  # from the beginning again
    assert 'data-replay="0"' in html(at)
    at.slider(key=f"replay_at_{RUN}").set_value(3).run()  # a hand on the slider takes over
    now[0] += 60.0
    at.run()
    assert 'data-replay="3"' in html(at)
    assert not at.exception


def test_the_address_keeps_the_replay_and_an_unknown_wish_shows_the_whole_run(open_page: Open, app: Services) -> None:
    at = open_page("history", app, run=RUN, show="<b>x</b>")
    assert not at.exception
    assert "data-replay" not in html(at)
    assert "show" not in at.query_params
    at = opened(open_page, app)
    assert at.query_params["show"] == "replay"
    at.button(key="back").click().run()
    assert dict(at.query_params) == {}


def test_a_run_that_still_goes_on_and_one_without_rounds_offer_no_replay(
    open_page: Open, app: Services, store: Store
) -> None:
    jobs = fake_app.FakeJobs()
    jobs.put(fake_app.running(ROUNDS[:3], run_id=f"{7:026d}"), ROUNDS[:3])
    app.jobs = jobs
    at = open_page("history", app, run=f"{7:026d}", show="replay")
    assert not at.exception
    assert "data-replay" not in html(at)
    fake_app.keep(store, f"{8:026d}", [])
    store.flush()
    at = open_page("history", app, run=f"{8:026d}", show="replay")
    assert not at.exception
    assert "data-replay" not in html(at)


def test_hostile_tokens_stay_text(open_page: Open, store: Store) -> None:
    fake_app.keep(store, RUN, [sample.chain(["accepted"], 0, text=sample.HOSTILE)])
    at = go(opened(open_page, fake_app.stored_services(store)), 1)
    assert "<script" not in html(at) and "<img" not in html(at)
    assert "&lt;script&gt;" in html(at)


def test_three_thousand_rounds_are_replayed_in_a_window(open_page: Open, store: Store) -> None:
    many: list[Round] = [sample.chain(["accepted", "rejected"], i) for i in range(3000)]
    fake_app.keep(store, RUN, many)
    at = go(opened(open_page, fake_app.stored_services(store)), 2900)
    found = html(at)
    assert found.count('class="sl-round"') <= run_view.WINDOW + 10
    assert len(found) < 400_000
    began = time.perf_counter()
    go(at, 2901)
    print(f"one step at round 2,901: {time.perf_counter() - began:.2f} s")
