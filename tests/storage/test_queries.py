"""Filter, sort, pages, facets and the plain run of a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import BadInput
from core.records import RunStatus, StopReason
from storage.filters import RunFilter
from storage.queries import SORTABLE, Runs
from storage.store import Store
from tests.helpers.records import at, ended, fingerprint, run_id, spec, started, summary

ENDS: dict[int, tuple[StopReason, float | None]] = {
    1: ("eos", 10.0),
    2: ("cancelled", None),
    3: ("eos", 30.0),
    4: ("failed", None),
}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Runs 1 … 4 over, with speeds 10, none, 30, none; 5 queued. 3 is plain; 2 has another pair."""
    with Store(tmp_path_factory.mktemp("five") / "speclens.duckdb") as store:
        for number in range(1, 6):
            prompt = {1: "100% Æther_x", 2: "a\\b", 3: "über", 4: "Say hello.", 5: "q"}[number]
            asked = spec(prompt, plain=number == 3, pair="other+pair" if number == 2 else "embedded")
            store.submitted(run_id(number), asked, f"session {number % 2}", at(number))
            if number in ENDS:
                reason, speed = ENDS[number]
                store.started(run_id(number), started(), at(number + 10 - 2 * number))
                made = summary(text=f"output {number}", tokens_per_second=speed)
                store.ended(run_id(number), ended(reason, text=f"output {number}"), made, at(30))
        store.flush()
        yield Runs(store)


def _ids(five: Runs, filter: RunFilter = RunFilter(), **order: Any) -> list[int]:  # noqa: B008 - frozen
    found = [int(run.run_id) for run in five.list(filter, **order)]
    assert five.count(filter) == len(found) or order
    return found


def test_without_a_wish_the_newest_run_comes_first(five: Runs) -> None:
    assert _ids(five) == [5, 4, 3, 2, 1]
    assert _ids(five, descending=False) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (RunFilter(status="done"), [3, 1]),
        (RunFilter(status=("failed", "queued")), [5, 4]),
        (RunFilter(status=[]), [5, 4, 3, 2, 1]),
        (RunFilter(pair="other+pair"), [2]),
        (RunFilter(drafter="none"), [3]),
        (RunFilter(shape="chain:4", status="done"), [1]),
        (RunFilter(rule="lossless"), [5, 4, 3, 2, 1]),
        (RunFilter(rule="lenience:0.4"), []),
        (RunFilter(session="session 1"), [5, 3, 1]),
        (RunFilter(since=at(3)), [5, 4, 3]),
        (RunFilter(until=at(3)), [2, 1]),
        (RunFilter(since=at(2), until=at(4)), [3, 2]),
        (RunFilter(text="æTHER"), [1]),
        (RunFilter(text="%"), [1]),
        (RunFilter(text="_"), [1]),
        (RunFilter(text="\\"), [2]),
        (RunFilter(text="ÜBER"), [3]),
        (RunFilter(text="OUTPUT 4"), [4]),
        (RunFilter(text=run_id(4)), [4]),
        (RunFilter(text="'; DROP TABLE runs; --"), []),
        (RunFilter(text="\ud800"), []),
        (RunFilter(status="done' OR 1=1 --"), []),
        (RunFilter(archived=True), []),
        (RunFilter(archived=None), [5, 4, 3, 2, 1]),
    ],
    ids=str,
)
def test_a_filter_finds_exactly_the_runs_it_describes(five: Runs, filter: RunFilter, found: list[int]) -> None:
    assert _ids(five, filter) == found


def test_runs_without_a_value_come_last_in_both_directions(five: Runs) -> None:
    assert _ids(five, sort="tokens_per_second") == [3, 1, 5, 4, 2]
    assert _ids(five, sort="tokens_per_second", descending=False) == [1, 3, 2, 4, 5]


def test_pages_follow_each_other_without_gap_or_repetition(five: Runs) -> None:
    pages = [_ids(five, sort="status", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert pages == [[5, 4], [3, 1], [2], []]


@pytest.mark.parametrize("name", sorted(SORTABLE))
def test_every_column_of_the_whitelist_sorts(five: Runs, name: str) -> None:
    assert sorted(_ids(five, sort=name)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["spec_json", "", "submitted_at; DROP TABLE runs", "summary_json", "archived"])
def test_other_columns_are_refused_with_a_sentence(five: Runs, name: str) -> None:
    with pytest.raises(BadInput, match="Runs cannot be sorted by"):
        five.list(sort=name)


@pytest.mark.parametrize("page", [{"limit": -1}, {"offset": -1}])
def test_negative_pages_are_refused(five: Runs, page: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="A page starts at 0 or later"):
        five.list(**page)


def test_an_id_that_no_run_has_finds_nothing(five: Runs) -> None:
    assert five.get("'; --") is None
    assert five.get("\ud800") is None


def test_facets_list_the_values_there_are_most_frequent_first(five: Runs) -> None:
    found = five.facets()
    assert found.pair == ("embedded", "other+pair")
    assert found.drafter == ("prompt_lookup", "none")
    assert found.shape == ("chain:4", "none")
    assert found.rule == ("lossless",)
    assert found.status == ("done", "cancelled", "failed", "queued")
    assert found.session == ("session 1", "session 0")


class TestThePlainRunOfASession:
    @pytest.fixture
    def store(self, path: Path) -> Iterator[Store]:
        with Store(path, gather_s=0.0) as opened:
            yield opened

    def _keep(self, store: Store, number: int, status: RunStatus = "done", **changes: Any) -> None:
        made = replace(fingerprint(drafting="none"), **changes)
        store.submitted(run_id(number), spec(plain=True), "mine", at(number))
        store.started(run_id(number), replace(started(), fingerprint=made), at(number))
        store.ended(run_id(number), ended("cancelled" if status == "cancelled" else "eos"), summary(), at(number))
        store.flush()

    def _found(self, store: Store, session: str = "mine") -> str | None:
        run = Runs(store).plain_for(fingerprint(), session)
        return run.run_id if run else None

    def test_is_the_latest_one_that_is_done(self, store: Store) -> None:
        assert self._found(store) is None
        self._keep(store, 1)
        self._keep(store, 2)
        self._keep(store, 3, "cancelled")
        assert self._found(store) == run_id(2)

    def test_is_not_taken_from_another_session(self, store: Store) -> None:
        self._keep(store, 1)
        assert self._found(store, "yours") is None

    @pytest.mark.parametrize(
        "change",
        [
            {"target_hash": "t1"},
            {"prompt_hash": "p1"},
            {"seed": 8},
            {"precision": "bfloat16"},
            {"reference_law": "min_p=0.5"},
            {"versions": {"torch": "3.0"}},
        ],
        ids=str,
    )
    def test_is_not_one_whose_environment_differs(self, store: Store, change: dict[str, Any]) -> None:
        self._keep(store, 1)
        self._keep(store, 2, **change)
        assert self._found(store) == run_id(1)


def test_ids_are_those_of_the_list_newest_first(five: Runs) -> None:
    listed = [run.run_id for run in five.list(RunFilter(), limit=None)]
    assert five.ids() == listed
    assert five.ids(limit=2) == listed[:2]
    assert five.ids(RunFilter(text="no such text")) == []


def test_runs_sort_by_how_long_they_took(five: Runs) -> None:
    took = [run.duration_s for run in five.list(sort="duration", limit=None)]
    known = [value for value in took if value is not None]
    assert known == sorted(known, reverse=True)
    assert took[len(known) :] == [None] * (len(took) - len(known))
