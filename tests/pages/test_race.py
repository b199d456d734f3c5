"""Pause, step and race on the Live page: what is asked of the queue, what two lanes show, what a link carries."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest
from streamlit.testing.v1 import AppTest

from core.grammar import parse_shape
from core.jobs.queue import JobView
from core.records import Round, RunStatus
from core.results.counterparts import counterparts
from core.results.race import Lane, ranking
from core.results.traces import Curve, bursts
from core.types import NoDrafter, RunSpec, SpecCascade
from pages.ui.live import race_line, race_view
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.helpers.fake_app import FakeJobs, NoRuns, fake_services
from tests.helpers.sample_walk import walked
from tests.pages.conftest import Open, html

A, B = "a" * 26, "b" * 26
CHAIN = [walked(parse_shape("chain:5"), index) for index in range(4)]
TREE = [walked(parse_shape("s3_k2_d6"), index) for index in range(4)]


def clean(at: AppTest) -> AppTest:
    """The page, which raised nothing."""
    assert not at.exception
    return at


def edit(shape: str, spec: RunSpec | None = None) -> RunSpec:
    spec = spec or sample.spec()
    return spec.model_copy(update={"request": spec.request.model_copy(update={"shape": parse_shape(shape)})})


def enabled(at: AppTest) -> set[str]:
    """The control buttons that can be pressed."""
    keys = {"pause", "resume", "step", "stop"}
    return {button.key for button in at.button if button.key in keys and not button.disabled}


def lanes(one: JobView, two: JobView) -> FakeJobs:
    """Two runs in the queue."""
    jobs = FakeJobs()
    jobs.put(one, CHAIN[: one.rounds])
    jobs.put(two, TREE[: two.rounds])
    return jobs


def running(run_id: str, rounds: list[Round], shape: str) -> JobView:
    return fake_app.running(rounds, edit(shape), run_id)


def over(run_id: str, rounds: list[Round], shape: str, status: RunStatus = "done") -> JobView:
    reason = "max_new_tokens" if status == "done" else status
    return fake_app.over(rounds, edit(shape), status, reason, run_id=run_id)  # type: ignore[arg-type]


# -- pause, resume, step


def test_a_running_run_can_be_paused_or_stopped_and_a_paused_one_stepped_resumed_or_stopped(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.running(CHAIN, run_id=A), CHAIN)
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=A))
    assert enabled(at) == {"pause", "stop"}
    clean(at.button(key="pause").click().run())
    assert jobs.steered == [("pause", A)]
    assert enabled(at) == {"resume", "step", "stop"}
    drawn = html(at)
    assert 'data-status="paused"' in drawn
    assert "The cache is kept for 10 minutes after the last round or step" in drawn
    clean(at.button(key="step").click().run())
    clean(at.button(key="resume").click().run())
    assert jobs.steered[1:] == [("step", A), ("resume", A)]
    assert enabled(at) == {"pause", "stop"}
    assert 'data-status="running"' in html(at)


def test_nothing_can_be_pressed_where_nothing_goes_on(open_page: Open) -> None:
    jobs = FakeJobs()
    app = fake_services(jobs, NoRuns())
    assert enabled(clean(open_page("live", app))) == set()
    jobs.put(fake_app.over(CHAIN, run_id=A), CHAIN)
    at = clean(open_page("live", app, run=A))
    assert enabled(at) == set()
    assert all(button.help for button in at.button if button.key in {"pause", "step"})


def test_a_run_that_starts_paused_stands_before_its_first_round(open_page: Open) -> None:
    jobs = FakeJobs()
    app = fake_services(jobs, NoRuns())
    at = open_page("live", app)
    at.toggle(key="start_paused").set_value(True).run()
    clean(at.button(key="run").click().run())
    assert jobs.races == [([f"{1:026d}"], True)]
    assert "will pause before its first round" in html(at)
    assert enabled(at) == {"resume", "step", "stop"}
    jobs.put(replace(fake_app.running([], run_id=f"{1:026d}"), paused=True))
    assert 'data-status="paused"' in html(clean(at.run()))


# -- the form


def test_switched_on_the_second_configuration_is_the_counterpart_at_the_same_budget_with_its_reason(
    open_page: Open,
) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.number_input(key="live_gamma").set_value(5).run()
    clean(at.toggle(key="race_on").set_value(True).run())
    clean(at.button(key="run").click().run())
    ((ids, paused),) = jobs.races
    assert not paused
    assert len(ids) == 2
    one, two = jobs.submitted
    assert two.request == next(c for c in counterparts(one.request) if c.kind == "tree").request
    assert two.pair == one.pair
    assert dict(at.query_params) == {"run": [ids[0]], "race": [ids[1]]} or dict(at.query_params) == {
        "run": ids[0],
        "race": ids[1],
    }
    assert at.button(key="run").label == "Race"


def test_a_second_configuration_is_chosen_by_hand(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.toggle(key="race_on").set_value(True).run()
    at.selectbox(key="race_drafter").set_value("early_exit").run()
    at.number_input(key="race_layers").set_value(9)
    at.number_input(key="race_nodes").set_value(5).run()
    clean(at.button(key="run").click().run())
    one, two = (spec.request for spec in jobs.submitted)
    assert two.drafter.model_dump() == {"kind": "early_exit", "layers": 9}
    assert (two.prompt, two.sampling, two.stops, two.seed) == (one.prompt, one.sampling, one.stops, one.seed)


def test_plain_is_raced_with_one_click(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.toggle(key="race_on").set_value(True).run()
    clean(at.button(key="race_plain_counterpart").click().run())
    assert "Plain decoding with the same model and sampling" in html(at)
    at.button(key="run").click().run()
    assert isinstance(jobs.submitted[1].request.drafter, NoDrafter)


def test_the_lossless_baseline_of_a_truncating_rule_races_under_the_same_allowed_set(open_page: Open) -> None:
    jobs = FakeJobs()
    at = open_page("live", fake_services(jobs, NoRuns()))
    at.selectbox(key="live_rule").set_value("spec_cascade").run()
    at.number_input(key="live_temperature").set_value(1.0).run()
    at.toggle(key="race_on").set_value(True).run()
    clean(at.button(key="race_lossless_counterpart").click().run())
    assert at.toggle(key="race_same_law").value
    at.button(key="run").click().run()
    one, two = (spec.request for spec in jobs.submitted)
    assert isinstance(one.rule, SpecCascade)
    assert two == next(c for c in counterparts(one) if c.kind == "lossless").request
    assert two.sampling.min_p == one.rule.p_base


def test_a_second_configuration_that_cannot_be_is_said_and_nothing_starts(open_page: Open) -> None:
    at = open_page("live", fake_services(FakeJobs(), NoRuns()))
    at.toggle(key="race_on").set_value(True).run()
    at.number_input(key="race_nodes").set_value(100).run()
    assert "The second configuration can&#x27;t be" in html(clean(at))
    assert at.button(key="run").disabled


# -- two lanes


def test_both_lanes_show_their_clocks_rounds_and_numbers_and_who_is_ahead(open_page: Open) -> None:
    jobs = lanes(running(A, CHAIN, "chain:5"), running(B, TREE, "s3_k2_d6"))
    drawn = html(clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=B)))
    assert drawn.count('data-status="running"') == 2
    assert drawn.count('class="sl-round"') == 8
    words = unescape(drawn.split('data-race="')[1].split('"')[0])
    found = ranking(Lane("running", bursts(CHAIN)), Lane("running", bursts(TREE)))
    assert words.startswith(f"{'AB'[found.ahead or 0]} is ahead. After 372 ms of own compute it has")
    assert 'data-row="tokens_per_second"' in drawn
    assert "prompt_lookup chain:5" in drawn
    assert "prompt_lookup s3_k2_d6" in drawn


def test_pause_step_and_stop_act_on_both_lanes_and_leave_an_ended_one_alone(open_page: Open) -> None:
    jobs = lanes(running(A, CHAIN, "chain:5"), running(B, TREE, "s3_k2_d6"))
    at = open_page("live", fake_services(jobs, NoRuns()), run=A, race=B)
    at.button(key="pause").click().run()
    at.button(key="step").click().run()
    at.button(key="resume").click().run()
    clean(at.button(key="stop").click().run())
    assert jobs.steered == [(what, lane) for what in ("pause", "step", "resume") for lane in (A, B)]
    assert jobs.cancelled == [A, B]
    jobs = lanes(over(A, CHAIN, "chain:5"), running(B, TREE, "s3_k2_d6"))
    at = open_page("live", fake_services(jobs, NoRuns()), run=A, race=B)
    clean(at.button(key="pause").click().run())
    assert jobs.steered == [("pause", B)]


def test_an_ended_race_names_who_was_first_and_links_to_compare(open_page: Open) -> None:
    jobs = lanes(over(A, CHAIN, "chain:5"), over(B, TREE, "s3_k2_d6"))
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=B))
    assert "finished" in html(at)
    (link,) = [one for one in at.get("page_link") if "compare" in one.proto.page]
    assert link.proto.query_string == f"runs={A}%2C{B}&base={A}"  # type: ignore[attr-defined]
    jobs.put(over(B, TREE[:1], "s3_k2_d6", "cancelled"), TREE[:1])
    assert "No winner: B was stopped." in html(clean(at.run()))


def test_a_lane_is_inspected_and_then_the_other(open_page: Open) -> None:
    jobs = lanes(over(A, CHAIN, "chain:5"), over(B, TREE, "s3_k2_d6"))
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=B))
    assert [field.key for field in at.number_input if "round_" in str(field.key)] == [f"round_{A}"]
    assert html(at).count(f'data-run="{A}"') == 4
    assert f'data-run="{B}"' not in html(at)
    lane = next(group for group in at.get("button_group") if group.key == "race_lane")
    clean(lane.set_value("B").run())  # type: ignore[attr-defined]
    assert [field.key for field in at.number_input if "round_" in str(field.key)] == [f"round_{B}"]


def test_the_form_takes_both_settings_of_the_race_in_the_link(open_page: Open) -> None:
    jobs = lanes(over(A, CHAIN, "chain:5"), over(B, TREE, "s3_k2_d5"))
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=B))
    assert at.toggle(key="race_on").value
    assert at.number_input(key="race_nodes").value == 5
    at.button(key="run").click().run()
    assert jobs.submitted == [edit("chain:5"), edit("s3_k2_d5")]


@pytest.mark.parametrize("rival", ["nonsense", "<script>", "0" * 26, A])
def test_a_link_whose_second_lane_is_no_run_shows_the_first_and_says_so(open_page: Open, rival: str) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.over(CHAIN, run_id=A), CHAIN)
    at = clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=rival))
    assert "The second lane is missing." in html(at)
    assert "data-race" not in html(at)
    assert "race" not in at.query_params


def test_a_link_to_one_run_is_no_race_and_one_without_runs_finds_the_race_that_goes_on(open_page: Open) -> None:
    jobs = lanes(running(A, CHAIN, "chain:5"), running(B, TREE, "s3_k2_d6"))
    app = fake_services(jobs, NoRuns())
    assert "data-race" not in html(clean(open_page("live", app, run=A)))
    assert "data-race" in html(clean(open_page("live", app)))
    jobs.put(replace(running(B, TREE, "s3_k2_d6"), submitted_at=fake_app.NOON + timedelta(seconds=9)), TREE)
    assert "data-race" not in html(clean(open_page("live", app)))


def test_two_runs_of_different_prompts_are_no_race_and_the_page_says_what_differs(open_page: Open) -> None:
    jobs = lanes(over(A, CHAIN, "chain:5"), fake_app.over(TREE, sample.spec(32, "Another."), run_id=B))
    assert "not asked the same thing (prompt, stops)" in html(
        clean(open_page("live", fake_services(jobs, NoRuns()), run=A, race=B))
    )


def test_a_stored_race_is_shown_without_an_engine(open_page: Open, store: Store) -> None:
    fake_app.keep(store, A, CHAIN, edit("chain:5"))
    fake_app.keep(store, B, TREE, edit("s3_k2_d6"))
    drawn = html(clean(open_page("live", fake_app.stored_services(store), run=A, race=B)))
    assert "finished" in drawn.split('data-race="')[1].split('"')[0]
    assert drawn.count('data-status="done"') == 2


def test_lanes_that_wait_or_failed_say_so(open_page: Open) -> None:
    jobs = lanes(fake_app.queued(A), fake_app.queued(B))
    app = fake_services(jobs, NoRuns())
    assert "Waiting for the first tokens of both lanes." in html(clean(open_page("live", app, run=A, race=B)))
    why = "The target has no layer 90: it has 30."
    jobs.put(replace(fake_app.over([], status="failed", reason="failed", error=why, run_id=B), summary=None))
    assert why in html(clean(open_page("live", app, run=A, race=B)))


# -- words and line


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("running", "A is ahead. After 286 ms of own compute it has 3 tokens, B 2."),
        ("done", "A finished first: 3 tokens in 286 ms of its own compute; B took 286 ms for 2 tokens"),
    ],
)
def test_the_sentence_names_tokens_and_clocks(status: RunStatus, said: str) -> None:
    one = Lane(status, bursts([sample.chain(["accepted"], 0), sample.plain(1)]))
    two = Lane(status, bursts([sample.plain(0), sample.plain(1)]))
    if status == "done":
        two = Lane(status, [*two.emitted[:1], replace(two.emitted[1], ended_at_s=0.2864)])
    assert race_view.sentence(ranking(one, two), one, two).startswith(said)


def test_the_lines_are_shares_of_round_axes() -> None:
    one = race_line.Line("A", "#000000", False, Curve((0.0, 1.5, 3.2), (0, 4, 9)))
    painted = race_line.data([one], 64, "words")
    assert [tick["text"] for tick in painted["xs"]] == ["0", "1 s", "2 s", "3 s", "4 s"]
    assert [tick["text"] for tick in painted["ys"]] == ["0", "2", "4", "6", "8", "10"]
    assert painted["lines"][0]["x"] == [0.0, 0.375, 0.8]
    assert painted["lines"][0]["y"] == [0.0, 0.4, 0.9]


@pytest.mark.parametrize("most", [1e-4, 0.03, 0.7, 1.0, 9.0, 120.0, 98765.0])
def test_an_axis_has_few_round_marks_that_reach_its_end(most: float) -> None:
    marks = race_line.ticks(most)
    assert marks[0] == 0
    assert 2 <= len(marks) <= race_line.MAX_TICKS + 1
    assert marks[-1] >= most * (1 - 1e-9)
    assert marks[-2] < most


def test_an_empty_race_has_axes_too() -> None:
    empty = race_line.Line("A", "#000000", False, Curve((0.0,), (0,)))
    assert race_line.data([empty, empty], 1, "")["ys"]
