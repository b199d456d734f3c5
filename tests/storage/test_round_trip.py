"""What is saved comes back equal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import Node, Round, TopToken
from storage.queries import Runs
from storage.store import Store
from storage.values import text
from tests.helpers.records import (
    HOSTILE,
    at,
    ended,
    fingerprint,
    round_,
    rounds,
    run_id,
    spec,
    started,
    summary,
)

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for the many examples that hypothesis makes."""
    with Store(tmp_path_factory.mktemp("shared") / "speclens.duckdb", gather_s=0.0) as opened:
        yield opened


def _save(store: Store, made: list[Round], prompt: str = "Say hello.") -> str:
    name = run_id(next(_numbers))
    store.submitted(name, spec(prompt), "session", at(0))
    store.started(name, started(), at(1))
    store.rounds(name, made)
    store.flush()
    return name


def _stored_text(one: Round) -> Round:
    """The round with its texts as the database can hold them."""

    def node(it: Node) -> Node:
        return replace(it, text=text(it.text))

    def top(it: TopToken) -> TopToken:
        return replace(it, text=text(it.text))

    return replace(
        one,
        nodes=tuple(map(node, one.nodes)),
        positions=tuple(replace(it, top=tuple(map(top, it.top))) for it in one.positions),
        committed_text=tuple(map(text, one.committed_text)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=rounds())
def test_rounds_come_back_equal_whatever_their_texts_and_numbers_are(shared: Store, made: list[Round]) -> None:
    assert Runs(shared).rounds(_save(shared, made)) == [_stored_text(one) for one in made]


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_hostile_texts_that_utf8_can_hold_come_back_exactly(shared: Store, hostile: str) -> None:
    made = [round_(0, hostile), round_(1, hostile)]
    assert Runs(shared).rounds(_save(shared, made)) == made


def test_half_a_surrogate_pair_becomes_the_replacement_character_and_its_token_id_stays(shared: Store) -> None:
    name = _save(shared, [round_(5 - 5, "a\ud83db\udc00")])
    (found,) = Runs(shared).rounds(name)
    assert found.nodes[0].text == "a\ufffdb\ufffd"
    assert found.nodes[0].token == 100
    assert found.committed_text == ("a\ufffdb\ufffd",) * 2
    assert found.committed == (100, 101)
    assert found.positions[0].top[0].text == "a\ufffdb\ufffd"


def test_a_whole_run_comes_back_with_settings_environment_and_summary(shared: Store) -> None:
    name = _save(shared, [round_(0), round_(1)])
    shared.rounds(name, [round_(2)])
    shared.ended(name, ended(), summary(), at(3))
    shared.flush()
    run = Runs(shared).get(name)
    assert run is not None
    assert (run.spec, run.session, run.status) == (spec(), "session", "done")
    assert (run.summary, run.fingerprint) == (summary(), fingerprint())
    assert (run.submitted_at, run.started_at, run.ended_at) == (at(0), at(1), at(3))
    assert run.duration_s == 2.0
    assert run.recomputed_share == 0.25
    assert (run.rounds_missing, run.archived, run.error) == (0, False, None)
    assert parse_drafter(run.drafter) == spec().request.drafter
    assert parse_shape(run.shape) == spec().request.shape
    assert parse_rule(run.rule) == spec().request.rule
    assert [one.index for one in Runs(shared).rounds(name)] == [0, 1, 2]


def test_rounds_are_read_by_cursor_and_limit(shared: Store) -> None:
    made = [round_(index) for index in range(7)]
    name = _save(shared, made)
    read = Runs(shared).rounds
    assert read(name, 5) == made[5:]
    assert read(name, 2, 3) == made[2:5]
    assert read(name, 7) == []
    assert read("no such run") == []


def test_numpy_scalars_are_stored_as_the_numbers_they_are(shared: Store) -> None:
    one = round_(0)
    node: Any = replace(one.nodes[0], token=np.int64(41), p=np.float32(0.5), q=np.float16(0.25))
    mixed: Any = replace(one, nodes=(node,), committed=(np.int32(3), np.int64(4)), draft_s=np.float32(0.5))
    (found,) = Runs(shared).rounds(_save(shared, [mixed]))
    assert (found.nodes[0].token, found.nodes[0].p, found.nodes[0].q) == (41, 0.5, 0.25)
    assert (found.committed, found.draft_s) == ((3, 4), 0.5)


def test_numbers_that_are_not_finite_are_null_in_the_database_and_never_poison_an_average(shared: Store) -> None:
    one = round_(0)
    made = [
        replace(one, draft_s=math.nan, nodes=(replace(one.nodes[0], p=math.inf, u=math.nan),)),
        replace(round_(1), draft_s=0.5),
    ]
    name = _save(shared, made)
    with shared.database.read() as connection:
        average = connection.exec_driver_sql(f"SELECT avg(draft_s) FROM rounds WHERE run_id = '{name}'").scalar()
    assert average == 0.5
    first = Runs(shared).rounds(name)[0]
    assert math.isnan(first.draft_s)
    assert (first.nodes[0].p, first.nodes[0].u) == (None, None)


def test_a_summary_with_numbers_that_are_not_finite_is_stored_and_read(shared: Store) -> None:
    name = _save(shared, [round_(0)])
    shared.ended(name, ended(), replace(summary(), draft_s=math.nan, tokens_per_second=math.inf), at(3))
    shared.flush()
    run = Runs(shared).get(name)
    assert run is not None
    assert run.summary is not None
    assert math.isnan(run.summary.draft_s)
    assert run.summary.tokens_per_second is None
    assert run.summary.verify_s == summary().verify_s


def test_a_prompt_with_nul_and_emoji_comes_back_exactly(shared: Store) -> None:
    prompt = "a\x00b\r\n👩‍👩‍👧‍👦 \u202e"
    run = Runs(shared).get(_save(shared, [], prompt))
    assert run is not None
    assert run.spec.request.prompt == prompt
