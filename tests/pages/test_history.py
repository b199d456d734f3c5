"""The History page over a real store: list, filter, sort, open, export, and what it says when it can't."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.errors import StorageUnavailable
from pages.ui import tables
from storage.filters import RunFilter
from storage.store import Store
from tests.pages import fakes, sample
from tests.pages.conftest import Open, html

CHAIN = [sample.chain(["accepted", "rejected"], i) for i in range(40)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the table was last given; its clicks are made by setting ``click``."""
    seen: dict[str, Any] = {"click": (None, None)}

    def record(runs: Any, sort: str, descending: bool) -> tuple[str | None, str | None]:
        seen.update(ids=[run.run_id for run in runs], sort=sort, descending=descending)
        click, seen["click"] = seen["click"], (None, None)
        return click

    monkeypatch.setattr(tables, "runs_table", record)
    return seen


def clean(at: AppTest) -> AppTest:
    """The page, which raised nothing."""
    assert not at.exception
    return at


def fill(store: Store, count: int) -> None:
    """``count`` runs of two rounds each."""
    for number in range(count):
        spec = sample.spec(prompt=f"Prompt number {number}")
        fakes.keep(store, f"{number:026d}", CHAIN[: 1 + number % 3], spec, after_s=60.0 * number)


def test_without_runs_the_page_says_where_they_come_from(open_page: Open, store: Store) -> None:
    at = clean(open_page("history", fakes.stored_services(store)))
    assert "No runs yet" in html(at)
    assert len(at.get("page_link")) == 1


def test_runs_are_listed_newest_first_in_pages(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 30)
    at = clean(open_page("history", fakes.stored_services(store)))
    assert 'data-count="30"' in html(at)
    assert table["ids"] == [f"{number:026d}" for number in range(29, 4, -1)]
    assert (table["sort"], table["descending"]) == ("submitted_at", True)
    at.get("pagination")[0].set_value(2).run()  # type: ignore[attr-defined]
    assert table["ids"] == [f"{number:026d}" for number in range(4, -1, -1)]


def test_a_click_on_a_heading_sorts_every_run_and_a_second_one_turns_the_order(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 3)
    at = clean(open_page("history", fakes.stored_services(store)))
    table["click"] = ("output_tokens", None)
    clean(at.run())
    assert (table["sort"], table["descending"]) == ("output_tokens", True)
    assert table["ids"] == [f"{n:026d}" for n in (2, 1, 0)]
    table["click"] = ("output_tokens", None)
    clean(at.run())
    assert table["ids"] == [f"{n:026d}" for n in (0, 1, 2)]


def test_every_heading_sorts_by_a_stored_column(store: Store) -> None:
    from storage.queries import SORTABLE

    assert {column.sort for column in tables.COLUMNS if column.sort} <= SORTABLE


def test_the_filter_narrows_list_and_count_and_can_be_cleared(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 12)
    at = clean(open_page("history", fakes.stored_services(store)))
    at.text_input(key="history_text").set_value("number 1").run()
    assert table["ids"] == [f"{n:026d}" for n in (11, 10, 1)]
    at.multiselect(key="history_status").set_value(["failed"]).run()
    assert "No run matches" in html(at)
    at.button[0].click().run()
    assert 'data-count="12"' in html(clean(at))


def test_dates_are_whole_days_of_this_machine(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 2)
    day = fakes.NOON.astimezone().date()
    at = clean(open_page("history", fakes.stored_services(store)))
    at.date_input(key="history_since").set_value(day)
    at.date_input(key="history_until").set_value(day).run()
    assert len(table["ids"]) == 2
    at.date_input(key="history_since").set_value(date(2027, 1, 1))
    at.date_input(key="history_until").set_value(None).run()
    assert "No run matches" in html(clean(at))


def test_a_click_on_a_run_opens_it_and_back_returns_to_the_list(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 2)
    at = clean(open_page("history", fakes.stored_services(store)))
    table["click"] = (None, f"{1:026d}")
    clean(at.run())
    assert at.query_params["run"] == f"{1:026d}"
    assert html(at).count('class="sl-round"') == 2
    clean(at.button(key="back").click().run())
    assert "run" not in at.query_params
    assert 'data-count="2"' in html(at)


def test_an_opened_run_shows_its_settings_numbers_and_rounds_from_the_store(open_page: Open, store: Store) -> None:
    fakes.keep(store, sample.RUN_ID, CHAIN)
    at = clean(open_page("history", fakes.stored_services(store), run=sample.RUN_ID))
    drawn = html(at)
    assert "Rounds 0–29" in drawn
    assert "prompt_lookup" in drawn and "chain:4" in drawn
    assert 'data-metric="tokens_per_round"' in drawn
    at.get("pagination")[0].set_value(2).run()  # type: ignore[attr-defined]
    assert "Rounds 30–39" in html(clean(at))


def test_a_run_of_another_session_offers_no_button_to_measure_plain(open_page: Open, store: Store) -> None:
    fakes.keep(store, sample.RUN_ID, CHAIN)
    app = fakes.stored_services(store)
    app.session = "a-later-session"
    at = clean(open_page("history", app, run=sample.RUN_ID))
    assert "No matched plain run was measured" in html(at)
    assert "measure_plain" not in [button.key for button in at.button]


@pytest.mark.parametrize("run_id", ["nonsense", "0" * 26, "<img src=x>"])
def test_a_link_to_no_run_is_answered_with_a_sentence(open_page: Open, store: Store, run_id: str) -> None:
    assert "No such run" in html(clean(open_page("history", fakes.stored_services(store), run=run_id)))


def test_hostile_prompts_and_output_stay_text(open_page: Open, store: Store) -> None:
    rounds = [sample.chain(["accepted"], 0, text=sample.HOSTILE)]
    fakes.keep(store, sample.RUN_ID, rounds, sample.spec(prompt=sample.HOSTILE))
    at = clean(open_page("history", fakes.stored_services(store), run=sample.RUN_ID))
    assert "<script" not in html(at) and "<img" not in html(at)
    assert sample.HOSTILE.replace("\u202e", "") in at.code[-1].value.replace("\u202e", "")


def test_the_export_is_the_whole_matched_set_and_not_the_page_in_view(store: Store) -> None:
    fill(store, 30)
    app = fakes.stored_services(store)
    rows = list(csv.DictReader(io.StringIO(app.export(RunFilter(text="number"), "runs").decode("utf-8-sig"))))
    assert len(rows) == 30
    rounds = list(csv.DictReader(io.StringIO(app.export(RunFilter(text="number 1"), "rounds").decode("utf-8-sig"))))
    assert {row["run_id"] for row in rounds} == {f"{n:026d}" for n in (1, *range(10, 20))}


def test_a_database_that_cannot_be_opened_leaves_a_page_that_says_so(open_page: Open) -> None:
    why = "The database is open in another process: close that one."
    at = clean(open_page("history", fakes.fake_services(fakes.FakeJobs(), None, why)))
    assert why in html(at)
    assert "History can&#x27;t be read" in html(at)
    assert at.button[0].label == "Open again"


def test_a_store_that_fails_while_reading_is_a_sentence_with_a_next_step(
    open_page: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = fakes.stored_services(store)

    def broken() -> None:
        raise StorageUnavailable("The disk is full: free some space.")

    monkeypatch.setattr(app.runs, "facets", broken)
    at = clean(open_page("history", app))
    assert "The disk is full: free some space." in html(at)
    assert at.button[0].label == "Try again"
