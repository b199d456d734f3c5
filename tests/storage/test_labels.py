"""Names, notes and tags: kept, found again, bounded, and written beside a run that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sqlalchemy.exc import OperationalError

from core.errors import BadInput, StorageUnavailable
from storage.filters import RunFilter
from storage.labels import MAX_NAME, MAX_NOTE, MAX_TAG, MAX_TAGS, Labels
from storage.queries import Runs, StoredRun
from storage.recovery import sweep
from storage.schema import runs
from storage.store import Store
from storage.writer import CONFLICTS
from tests.helpers.records import HOSTILE, at, ended, round_, run_id, spec, started, summary


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Three ended runs."""
    with Store(path, gather_s=0.0) as opened:
        for number in (1, 2, 3):
            opened.submitted(run_id(number), spec(f"prompt {number}"), "s", at(number))
            opened.ended(run_id(number), ended(text=f"output {number}"), None, at(number + 1))
        opened.flush()
        yield opened


def _run(stored: Runs, number: int) -> StoredRun:
    run = stored.get(run_id(number))
    assert run is not None
    return run


def _found(stored: Runs, filter: RunFilter) -> list[int]:
    found = [int(run.run_id) for run in stored.list(filter)]
    assert stored.count(filter) == len(found)
    return found


def test_a_new_run_has_neither_name_nor_note_nor_tags(stored: Runs) -> None:
    run = _run(stored, 1)
    assert (run.name, run.note, run.tags) == (None, None, ())


def test_name_note_and_tags_are_kept_when_the_store_is_opened_again(path: Path, store: Store) -> None:
    store.rename(run_id(1), "Baseline")
    store.annotate(run_id(1), "first line\nsecond line")
    assert store.tag([run_id(1), run_id(2)], add=["slow", "april"]) == 2
    store.close()
    with Store(path) as again:
        run = _run(Runs(again), 1)
        assert (run.name, run.note, run.tags) == ("Baseline", "first line\nsecond line", ("april", "slow"))
        assert [one.tags for one in Runs(again).list()] == [(), ("april", "slow"), ("april", "slow")]


def test_a_later_name_replaces_the_earlier_one_and_an_empty_one_takes_it_away(store: Store, stored: Runs) -> None:
    for given, kept in (("a", "a"), ("b", "b"), ("  ", None), ("c", "c"), (None, None)):
        store.rename(run_id(1), given)
        store.annotate(run_id(1), given)
        assert (_run(stored, 1).name, _run(stored, 1).note) == (kept, kept)


def test_a_name_is_one_line_without_control_characters(store: Store, stored: Runs) -> None:
    store.rename(run_id(1), "  two\r\nlines\t\x1b[31mred\x00 ")
    assert _run(stored, 1).name == "two lines [31mred"


@pytest.mark.parametrize("value", [value for value in HOSTILE if value.strip("\t\r\n \x00")])
def test_hostile_text_in_a_note_comes_back_without_the_space_around_it(store: Store, stored: Runs, value: str) -> None:
    store.annotate(run_id(1), value)
    assert _run(stored, 1).note == value.strip()


def test_half_a_surrogate_pair_becomes_a_replacement_character(store: Store, stored: Runs) -> None:
    store.rename(run_id(1), "\ud800 name")
    store.tag([run_id(1)], add="\ud800")
    assert (_run(stored, 1).name, _run(stored, 1).tags) == ("\ufffd name", ("\ufffd",))


def test_a_run_has_a_tag_once_however_often_it_is_added(store: Store, stored: Runs) -> None:
    for _ in range(2):
        store.tag([run_id(1), run_id(1)], add=["x", " x ", "x"])
    assert _run(stored, 1).tags == ("x",)
    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM tags").scalar() == 1


def test_tags_are_added_and_taken_away_in_one_step(store: Store, stored: Runs) -> None:
    store.tag([run_id(1), run_id(2)], add=["old", "kept"])
    assert store.tag([run_id(1), run_id(3), "no such run"], add=["new"], remove=["old"]) == 2
    assert [run.tags for run in stored.list()] == [("new",), ("kept", "old"), ("kept", "new")]


def test_runs_are_found_by_any_of_several_tags(store: Store, stored: Runs) -> None:
    store.tag([run_id(1)], add=["a", "both"])
    store.tag([run_id(2)], add=["b", "both"])
    assert _found(stored, RunFilter(tag="a")) == [1]
    assert _found(stored, RunFilter(tag=["a", "b"])) == [2, 1]
    assert _found(stored, RunFilter(tag="both", text="output 2")) == [2]
    assert _found(stored, RunFilter(tag="A")) == []
    assert _found(stored, RunFilter(tag=[])) == [3, 2, 1]
    assert _found(stored, RunFilter(tag="' OR 1=1 --")) == []


def test_the_search_looks_into_names_and_notes_too(store: Store, stored: Runs) -> None:
    store.rename(run_id(1), "Ærø 100%")
    store.annotate(run_id(2), "bursts at the end")
    assert _found(stored, RunFilter(text="æRØ 100%")) == [1]
    assert _found(stored, RunFilter(text="BURSTS")) == [2]
    assert _found(stored, RunFilter(text="prompt 3")) == [3]


def test_runs_are_sorted_by_name_with_the_unnamed_last(store: Store, stored: Runs) -> None:
    store.rename(run_id(1), "b")
    store.rename(run_id(3), "a")
    assert [run.name for run in stored.list(sort="name", descending=False)] == ["a", "b", None]


def test_facets_list_tags_most_frequent_first(store: Store, stored: Runs) -> None:
    assert stored.facets().tag == ()
    store.tag([run_id(1), run_id(2)], add="often")
    store.tag([run_id(3)], add="a once")
    assert stored.facets().tag == ("often", "a once")


@pytest.mark.parametrize("number", [1, MAX_NAME])
def test_the_longest_name_is_kept(store: Store, stored: Runs, number: int) -> None:
    store.rename(run_id(1), "x" * number)
    assert _run(stored, 1).name == "x" * number


def test_what_is_too_long_is_refused_with_its_length_and_changes_nothing(store: Store, stored: Runs) -> None:
    with pytest.raises(BadInput, match=r"A name has at most 200 characters, and this one has 201: shorten it."):
        store.rename(run_id(1), "x" * (MAX_NAME + 1))
    with pytest.raises(BadInput, match=r"A note has at most 20,000 characters, and this one has 20,001: shorten it."):
        store.annotate(run_id(1), "x" * (MAX_NOTE + 1))
    with pytest.raises(BadInput, match=r"A tag has at most 50 characters, and this one has 51: shorten it."):
        store.tag([run_id(1)], add=["fine", "x" * (MAX_TAG + 1)])
    run = _run(stored, 1)
    assert (run.name, run.note, run.tags) == (None, None, ())


def test_more_tags_than_a_run_may_have_are_refused_and_none_is_added(store: Store, stored: Runs) -> None:
    twenty = [f"t{number:02}" for number in range(MAX_TAGS)]
    store.tag([run_id(2)], add=twenty)
    with pytest.raises(BadInput, match=rf"A run has at most 20 tags, and {run_id(2)} would have 21: take some away"):
        store.tag([run_id(1), run_id(2)], add="one more", remove="not there")
    assert [run.tags for run in stored.list()] == [(), tuple(twenty), ()]
    store.tag([run_id(2)], add="one more", remove="t00")
    assert len(_run(stored, 2).tags) == MAX_TAGS


def test_an_empty_tag_and_one_both_ways_are_refused(store: Store) -> None:
    with pytest.raises(BadInput, match=r"A tag cannot be empty: type a word for it."):
        store.tag([run_id(1)], add=" \n")
    with pytest.raises(BadInput, match=r"The tag 'x' cannot be added and taken away at once: choose one."):
        store.tag([run_id(1)], add="x", remove=["x"])


@pytest.mark.parametrize("unknown", ["nobody", "'; --", "\ud800"])
def test_an_unknown_run_cannot_be_named_or_annotated(store: Store, unknown: str) -> None:
    for change in (store.rename, store.annotate):
        with pytest.raises(BadInput, match=r"There is no run .*: it was deleted, or its link is wrong."):
            change(unknown, "x")
    assert store.tag([unknown], add="x") == 0


def test_a_run_that_goes_on_keeps_its_labels_to_its_end(store: Store, stored: Runs) -> None:
    store.submitted(run_id(4), spec(), "s", at(0))
    store.rename(run_id(4), "named while queued")
    store.started(run_id(4), started(), at(1))
    store.tag([run_id(4)], add="running")
    store.rounds(run_id(4), [round_(0)])
    store.annotate(run_id(4), "looks fine")
    store.ended(run_id(4), ended(), summary(), at(2))
    store.flush()
    run = _run(stored, 4)
    assert (run.status, run.name, run.note, run.tags) == ("done", "named while queued", "looks fine", ("running",))
    assert run.summary == summary()


def test_a_write_that_meets_another_transaction_is_done_again(
    store: Store, stored: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [CONFLICTS]
    label = store._label

    def conflicting(*given: str, **changes: str | None) -> int:
        done = label(*given, **changes)
        if left[0]:
            left[0] -= 1
            raise OperationalError("", None, duckdb.TransactionException("Conflict on tuple update!"))
        return done

    monkeypatch.setattr(store, "_label", conflicting)
    store.rename(run_id(1), "after conflicts")
    assert (left, _run(stored, 1).name) == ([0], "after conflicts")
    left[0] = CONFLICTS + 1
    with pytest.raises(StorageUnavailable, match=r"cannot be written .*Try again then"):
        store.rename(run_id(1), "never")


def test_deleting_a_run_takes_its_tags_and_leaves_those_of_others(store: Store, stored: Runs) -> None:
    store.tag([run_id(1), run_id(2)], add="x")
    store.delete([run_id(1)])
    assert stored.facets().tag == ("x",)
    store.delete([run_id(2)])
    assert stored.facets().tag == ()


def test_tags_that_a_cut_off_deletion_left_are_swept(store: Store) -> None:
    """The run never started, so that no other table knows it."""
    store.tag([run_id(1), run_id(2)], add="x")
    with store.database.write() as connection:
        connection.execute(runs.delete().where(runs.c.run_id == run_id(1)))
        assert sweep(connection) == 1
    with store.database.read() as connection:
        assert connection.exec_driver_sql("SELECT run_id FROM tags").scalars().all() == [run_id(2)]


def test_labels_of_many_runs_are_read_at_once_and_unknown_ones_are_left_out(store: Store, stored: Runs) -> None:
    store.rename(run_id(1), "first")
    store.annotate(run_id(1), "a note")
    store.tag([run_id(1)], add=["b", "a"])
    store.archive([run_id(2)])
    assert stored.labels([run_id(1), run_id(2), run_id(9)]) == {
        run_id(1): Labels("done", "first", "a note", ("a", "b")),
        run_id(2): Labels("done", archived=True),
    }
