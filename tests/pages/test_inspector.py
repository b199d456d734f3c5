"""The round inspector: where a tree is drawn, what a coin's bar says, and what the page shows of a position."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.grammar import parse_shape
from core.records import ROOT, Distortion, Round
from core.results.matching import plain_counterpart
from pages.ui.rounds import inspector, position, tokens, tree_drawing
from pages.ui.rounds.tree_drawing import END, Mark, drawing
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.helpers.fake_app import FakeJobs, NoRuns, fake_services
from tests.helpers.sample_walk import walked
from tests.pages.conftest import Open, html


def places(round_: Round) -> dict[int, tuple[int, int]]:
    """Column and row of every mark."""
    return {mark.id: (mark.column, mark.row) for mark in drawing(round_).marks}


def mark(round_: Round, id: int) -> Mark:
    return next(one for one in drawing(round_).marks if one.id == id)


def test_a_chain_that_is_accepted_whole_is_one_line_with_its_bonus_at_the_end() -> None:
    made = sample.chain(("accepted",) * 3)
    assert places(made) == {ROOT: (0, 0), 0: (1, 0), 1: (2, 0), 2: (3, 0), END: (4, 0)}
    assert (drawing(made).columns, drawing(made).rows) == (5, 1)
    assert mark(made, END).state == "bonus"
    assert all(one.committed for one in drawing(made).marks)


def test_the_correction_stands_on_the_committed_path_and_what_it_replaced_below() -> None:
    made = sample.chain(["accepted", "rejected", "unreached"])
    assert places(made) == {ROOT: (0, 0), 0: (1, 0), END: (2, 0), 1: (2, 1), 2: (3, 1)}
    assert mark(made, END).parent == 0
    assert [one.id for one in drawing(made).marks if one.committed] == [ROOT, 0, END]


def test_a_tree_has_its_committed_path_on_the_first_row_and_siblings_below() -> None:
    made = sample.tree()
    assert places(made) == {ROOT: (0, 0), 1: (1, 0), 3: (2, 0), END: (3, 0), 4: (2, 1), 0: (1, 2), 2: (2, 2)}
    assert {one.id: one.state for one in drawing(made).marks} == {
        ROOT: "root", 0: "rejected", 1: "accepted", 2: "unreached", 3: "accepted", 4: "unreached", END: "bonus",
    }  # fmt: skip


def test_a_round_that_stopped_inside_its_draft_has_no_last_token_and_plain_rounds_have_only_that() -> None:
    stopped = sample.chain(["accepted", "cut"], source="none")
    assert END not in places(stopped)
    assert places(sample.plain()) == {ROOT: (0, 0), END: (1, 0)}
    assert drawing(sample.plain()).marks[-1].state == "plain"


@pytest.mark.parametrize("shape", ["s6_k10_d48", "s3_k2_d6", "chain:5", "s5_k1_d6", "chain:47"])
@pytest.mark.parametrize("index", range(4))
def test_no_two_marks_share_a_place_and_every_child_stands_one_column_on_and_not_above(shape: str, index: int) -> None:
    made = walked(parse_shape(shape), index)
    placed = drawing(made)
    spots = [(one.column, one.row) for one in placed.marks]
    assert len(set(spots)) == len(spots)
    by_id = {one.id: one for one in placed.marks}
    assert len(by_id) == len(made.nodes) + 2
    for one in placed.marks:
        assert one.row < placed.rows
        assert one.column < placed.columns
        if one.parent is not None:
            assert one.column == by_id[one.parent].column + 1
            assert one.row >= by_id[one.parent].row
        assert not one.committed or one.row == 0


def test_the_longest_chain_is_placed() -> None:
    made = sample.chain(("accepted",) * 256)
    assert places(made)[END] == (257, 0)


def test_the_drawing_is_told_in_words_as_well() -> None:
    words = tree_drawing.summary(sample.tree(3))
    assert words.startswith("Round 4: 5 candidates, 2 accepted, 1 rejected, 2 unreached, then a bonus.")
    assert tree_drawing.summary(sample.plain()) == "Round 1: no draft."


def test_a_coin_is_drawn_against_its_threshold_with_the_decision() -> None:
    made = sample.tree()
    assert position.tested(made, ROOT) == [0, 1]
    assert position.tested(made, 1) == [3]
    drawn = position.coins(made, [0, 1], 0)
    assert 'width:20.00%"></i><b style="left:90.00%"' in drawn
    assert "coin u 0.900 ≥ accept probability 0.200 → ✗ rejected" in unescape(drawn)
    assert "coin u 0.500 < accept probability 0.800 → ✓ accepted" in unescape(drawn)
    assert drawn.count("aria-current") == 1


def test_a_coin_near_its_threshold_and_a_redraw_that_fell_back_say_so() -> None:
    made = sample.chain(["rejected"])
    node = replace(made.nodes[0], near_threshold=True, redraw_fallback=True)
    drawn = position.coins(replace(made, nodes=(node,)), [0], -1)
    assert tokens.NEAR in drawn
    assert "falls back to the target&#x27;s" in drawn


def test_a_position_shows_what_is_known_and_a_dash_for_what_is_not() -> None:
    made = walked(parse_shape("s3_k2_d6"), 0)
    drawn = position.table(made, made.positions[0], None, made.nodes[0].token)
    first = made.positions[0].top[0]
    assert (first.p, first.q, first.residual, first.induced) == (0.35, 1.0, 0.0, 0.35)
    row = drawn.split("<tbody>")[1].split("</tr>")[0]
    assert [cell.split("<")[0] for cell in row.split('<td class="num">')[1:]] == ["0.350", "1", "0", "0.350"]
    assert 'aria-current="true"' in row
    rest = drawn.rpartition("all others")[2]
    assert [cell.split("<")[0] for cell in rest.split('<td class="num">')[1:]] == ["0.031", "0", "–", "–"]
    unmeasured = walked(parse_shape("s3_k2_d6"), 0, measured=False)
    row = position.table(unmeasured, unmeasured.positions[0], None, None).split("<tbody>")[1].split("</tr>")[0]
    assert [cell.split("<")[0] for cell in row.split('<td class="num">')[1:]] == ["0.350", "1", "–", "–"]


def test_distortion_names_what_left_the_support_and_what_is_conditional() -> None:
    line = position.distortion(Distortion(None, 0.25, 0.125, 0.5, conditional=True))
    for said in ("KL –", "TV 0.250", "mass outside the reference law 0.125", "overshoot 50.0 %", "given the tokens"):
        assert said in line
    assert position.distortion(None) == ""


def test_markup_in_tokens_is_inert_in_the_table_and_the_coins() -> None:
    made = sample.chain(["rejected"], text=sample.HOSTILE, last=sample.HOSTILE)
    drawn = position.table(made, made.positions[0], "correction", None) + position.coins(made, [0], 0)
    assert "<img" not in drawn
    assert "<script" not in drawn
    assert "&lt;img" in drawn


# -- on the page


def opened(open_page: Open, rounds: list[Round], **session: Any) -> AppTest:
    """A finished run of these rounds on Live, with what a person chose."""
    jobs = FakeJobs()
    jobs.put(fake_app.over(rounds), rounds)
    at = open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID)
    for key, value in session.items():
        at.session_state[f"{key}_{sample.RUN_ID}"] = value
    at = at.run() if session else at
    assert not at.exception
    return at


TREES = [walked(parse_shape("s3_k2_d6"), index) for index in range(6)]


def test_an_ended_run_opens_at_its_first_round_and_the_position_of_its_last_token(open_page: Open) -> None:
    drawn = html(opened(open_page, TREES))
    end = inspector.tokens.path_end(TREES[0])
    assert f"after candidate {end + 1}" in drawn if end != ROOT else "after the committed prefix" in drawn
    assert "Draft 10 ms" in drawn
    assert "Verify 30 ms" in drawn
    assert 'data-round="0"' in drawn


def test_the_round_is_chosen_by_number_and_stays_in_view(open_page: Open) -> None:
    at = opened(open_page, TREES)
    at.number_input(key=f"round_{sample.RUN_ID}").set_value(5).run()
    assert not at.exception
    correct = TREES[4].count("unreached")
    assert f"{correct} unreached" in html(at)
    at.number_input(key=f"round_{sample.RUN_ID}").set_value(4000).run()
    assert at.number_input(key=f"round_{sample.RUN_ID}").value == 6


def test_a_candidate_shows_the_coins_of_its_position(open_page: Open) -> None:
    drawn = html(opened(open_page, [sample.tree(0)], mark=(0, 0)))
    assert "after the committed prefix" in drawn
    assert "distributions of this position were not kept" in drawn  # the sample keeps only the last position
    made = TREES[0]
    drawn = unescape(html(opened(open_page, TREES, mark=(0, 0))))
    assert f"coin u {made.nodes[0].u:.3f}" in drawn


def test_a_candidate_that_was_never_reached_says_so(open_page: Open) -> None:
    drawn = html(opened(open_page, [sample.tree(0)], mark=(0, 2)))
    assert inspector.UNTESTED.replace("'", "&#x27;") in drawn


@pytest.mark.parametrize("mark", [(0, 9999), (0, -7), ("x", "y")])
def test_a_choice_that_the_round_does_not_have_falls_back_to_its_last_token(open_page: Open, mark: object) -> None:
    assert "bonus</small>" in html(opened(open_page, [sample.tree(0)], mark=mark))


def test_a_running_run_keeps_the_inspector_closed_and_a_paused_one_follows_its_latest_round(open_page: Open) -> None:
    jobs = FakeJobs()
    jobs.put(fake_app.running(TREES), TREES)
    app = fake_services(jobs, NoRuns())
    at = open_page("live", app, run=sample.RUN_ID)
    assert not at.exception
    assert "data-round" not in html(at)
    jobs.put(replace(fake_app.running(TREES), paused=True), TREES)
    at = open_page("live", app, run=sample.RUN_ID)
    assert at.number_input(key=f"round_{sample.RUN_ID}").value == 6
    at.number_input(key=f"round_{sample.RUN_ID}").set_value(2).run()
    assert at.toggle(key=f"follow_{sample.RUN_ID}").value is False
    assert at.number_input(key=f"round_{sample.RUN_ID}").value == 2


def test_a_plain_run_is_inspected_as_well(open_page: Open) -> None:
    jobs = FakeJobs()
    rounds = [sample.plain(i) for i in range(3)]
    spec = sample.spec()
    spec = spec.model_copy(update={"request": plain_counterpart(spec.request)})
    jobs.put(fake_app.over(rounds, spec), rounds)
    at = open_page("live", fake_services(jobs, NoRuns()), run=sample.RUN_ID)
    assert not at.exception
    assert "no draft" in html(at)
    assert "0.700" in html(at)


def test_a_stored_run_is_inspected_in_history_without_a_model(open_page: Open, store: Store) -> None:
    fake_app.keep(store, sample.RUN_ID, TREES)
    at = open_page("history", fake_app.stored_services(store), run=sample.RUN_ID)
    assert not at.exception
    at.number_input(key=f"round_{sample.RUN_ID}").set_value(3).run()
    assert not at.exception
    assert "all others" in html(at)
