"""The History page over a real store: list, filter, sort, open, export, and what it says when it can't."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.errors import StorageUnavailable
from pages.ui.history import tables
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

CHAIN = [sample.chain(["accepted", "rejected"], i) for i in range(40)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the table was last given; its clicks are made by setting ``click``."""
    seen: dict[str, Any] = {"click": tables.Clicked()}

    def record(runs: Any, sort: str, descending: bool, columns: Any, selected: Any) -> tables.Clicked:
        ids = [run.run_id for run in runs]
        seen.update(ids=ids, sort=sort, descending=descending, columns=tuple(columns), selected=sorted(selected))
        click, seen["click"] = seen["click"], tables.Clicked()
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
        fake_app.keep(store, f"{number:026d}", CHAIN[: 1 + number % 3], spec, after_s=60.0 * number)


def test_without_runs_the_page_says_where_they_come_from(open_page: Open, store: Store) -> None:
    at = clean(open_page("history", fake_app.stored_services(store)))
    assert "No runs yet" in html(at)
    assert len(at.get("page_link")) == 1


def test_runs_are_listed_newest_first_in_pages(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 30)
    at = clean(open_page("history", fake_app.stored_services(store)))
    assert 'data-count="30"' in html(at)
    assert table["ids"] == [f"{number:026d}" for number in range(29, 4, -1)]
    assert (table["sort"], table["descending"]) == ("submitted_at", True)
    at.get("pagination")[0].set_value(2).run()  # type: ignore[attr-defined]
    assert table["ids"] == [f"{number:026d}" for number in range(4, -1, -1)]


def test_a_click_on_a_heading_sorts_every_run_and_a_second_one_turns_the_order(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 3)
    at = clean(open_page("history", fake_app.stored_services(store)))
    table["click"] = tables.Clicked(sort="output_tokens")
    clean(at.run())
    assert (table["sort"], table["descending"]) == ("output_tokens", True)
    assert table["ids"] == [f"{n:026d}" for n in (2, 1, 0)]
    table["click"] = tables.Clicked(sort="output_tokens")
    clean(at.run())
    assert table["ids"] == [f"{n:026d}" for n in (0, 1, 2)]


def test_every_heading_sorts_by_a_stored_column() -> None:
    from storage.queries import SORTABLE

    assert tables.SORTS <= SORTABLE
    assert tables.ASCENDING_FIRST <= tables.SORTS


def test_the_filter_narrows_list_and_count_and_can_be_cleared(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 12)
    at = clean(open_page("history", fake_app.stored_services(store)))
    at.text_input(key="history_text").set_value("number 1").run()
    assert table["ids"] == [f"{n:026d}" for n in (11, 10, 1)]
    at.multiselect(key="history_status").set_value(["failed"]).run()
    assert "No run matches" in html(at)
    at.button(key="history_clear").click().run()
    assert 'data-count="12"' in html(clean(at))


def test_dates_are_whole_days_of_this_machine(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 2)
    day = fake_app.NOON.astimezone().date()
    at = clean(open_page("history", fake_app.stored_services(store)))
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
    at = clean(open_page("history", fake_app.stored_services(store)))
    table["click"] = tables.Clicked(open=f"{1:026d}")
    clean(at.run())
    assert at.query_params["run"] == f"{1:026d}"
    assert html(at).count('class="sl-round"') == 2
    clean(at.button(key="back").click().run())
    assert "run" not in at.query_params
    assert 'data-count="2"' in html(at)


def test_an_opened_run_shows_its_settings_numbers_and_rounds_from_the_store(open_page: Open, store: Store) -> None:
    fake_app.keep(store, sample.RUN_ID, CHAIN)
    at = clean(open_page("history", fake_app.stored_services(store), run=sample.RUN_ID))
    drawn = html(at)
    assert "Rounds 1–30" in drawn
    assert "prompt_lookup" in drawn and "chain:4" in drawn
    assert 'data-metric="tokens_per_round"' in drawn
    at.get("pagination")[0].set_value(2).run()  # type: ignore[attr-defined]
    assert "Rounds 31–40" in html(clean(at))


def test_a_run_of_another_session_offers_no_button_to_measure_plain(open_page: Open, store: Store) -> None:
    fake_app.keep(store, sample.RUN_ID, CHAIN)
    app = fake_app.stored_services(store)
    app.session = "a-later-session"
    at = clean(open_page("history", app, run=sample.RUN_ID))
    assert "No matched plain run was measured" in html(at)
    assert "measure_plain" not in [button.key for button in at.button]


@pytest.mark.parametrize("run_id", ["nonsense", "0" * 26, "<img src=x>"])
def test_a_link_to_no_run_is_answered_with_a_sentence(open_page: Open, store: Store, run_id: str) -> None:
    assert "No such run" in html(clean(open_page("history", fake_app.stored_services(store), run=run_id)))


def test_hostile_prompts_and_output_stay_text(open_page: Open, store: Store) -> None:
    rounds = [sample.chain(["accepted"], 0, text=sample.HOSTILE)]
    fake_app.keep(store, sample.RUN_ID, rounds, sample.spec(prompt=sample.HOSTILE))
    at = clean(open_page("history", fake_app.stored_services(store), run=sample.RUN_ID))
    assert "<script" not in html(at) and "<img" not in html(at)
    assert sample.HOSTILE.replace("\u202e", "") in at.code[-1].value.replace("\u202e", "")


def test_a_database_that_cannot_be_opened_leaves_a_page_that_says_so(open_page: Open) -> None:
    why = "The database is open in another process: close that one."
    at = clean(open_page("history", fake_app.fake_services(fake_app.FakeJobs(), None, why)))
    assert why in html(at)
    assert "History can&#x27;t be read" in html(at)
    assert at.button[0].label == "Open again"


def test_a_store_that_fails_while_reading_is_a_sentence_with_a_next_step(
    open_page: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = fake_app.stored_services(store)

    def broken() -> None:
        raise StorageUnavailable("The disk is full: free some space.")

    monkeypatch.setattr(app.runs, "facets", broken)
    at = clean(open_page("history", app))
    assert "The disk is full: free some space." in html(at)
    assert at.button[0].label == "Try again"


# -- the link ----------------------------------------------------------------------------------------------------------


def test_search_filters_order_columns_and_shelf_stand_in_the_address_and_defaults_do_not(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 3)
    at = clean(open_page("history", fake_app.stored_services(store)))
    assert dict(at.query_params) == {}
    at.text_input(key="history_text").set_value("number")
    at.multiselect(key="history_status").set_value(["done", "failed"])
    at.multiselect(key="history_columns").set_value(["name", "seed"])
    at.selectbox(key="history_archived").set_value("all")
    at.date_input(key="history_since").set_value(date(2026, 1, 2)).run()
    table["click"] = tables.Clicked(sort="seed")
    clean(at.run())
    assert dict(at.query_params) == {
        "q": "number",
        "status": ["done", "failed"],
        "since": "2026-01-02",
        "archived": "all",
        "sort": "seed",
        "columns": "name,seed",
    }
    assert table["columns"] == ("name", "seed")
    at.button(key="history_usual").click()
    at.text_input(key="history_text").set_value("")
    at.multiselect(key="history_status").set_value([])
    at.selectbox(key="history_archived").set_value("no")
    at.date_input(key="history_since").set_value(None).run()
    table["click"] = tables.Clicked(sort="submitted_at")
    clean(at.run())
    assert dict(at.query_params) == {}


def test_a_link_shows_what_it_was_copied_from(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 12)
    link = {"q": "number 1", "sort": "output_tokens", "order": "up", "columns": "seed,prompt", "status": "done"}
    at = clean(open_page("history", fake_app.stored_services(store), **link))
    assert sorted(table["ids"]) == [f"{n:026d}" for n in (1, 10, 11)]
    assert (table["sort"], table["descending"], table["columns"]) == ("output_tokens", False, ("seed", "prompt"))
    assert at.text_input(key="history_text").value == "number 1"
    assert at.multiselect(key="history_status").value == ["done"]


def test_another_address_in_the_same_window_is_followed_and_an_empty_one_is_the_usual_list(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 3)
    at = clean(open_page("history", fake_app.stored_services(store), q="number 2"))
    assert table["ids"] == [f"{2:026d}"]
    at.query_params["q"] = "number 1"
    clean(at.run())
    assert table["ids"] == [f"{1:026d}"]
    del at.query_params["q"]
    clean(at.run())
    assert len(table["ids"]) == 3
    assert at.text_input(key="history_text").value == ""


def test_the_filter_stays_when_the_page_is_left_and_comes_back_without_an_address(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 3)
    at = clean(open_page("history", fake_app.stored_services(store), q="number 2"))
    clean(at.switch_page("pages/compare.py").run())
    for name in list(at.query_params):
        del at.query_params[name]
    clean(at.switch_page("pages/history.py").run())
    assert table["ids"] == [f"{2:026d}"]
    assert at.query_params["q"] == "number 2"


def test_what_a_bad_link_asks_for_is_said_and_left_out(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 2)
    link = {
        "status": "<b>broken</b>", "sort": "run_id; drop table runs", "order": "sideways", "since": "tomorrow",
        "until": "0001-01-01", "archived": "maybe", "columns": "seed,<img src=x>,nope", "q": "x\x00" + "y" * 10_000,
    }  # fmt: skip
    at = clean(open_page("history", fake_app.stored_services(store), **link))
    said = html(at)
    assert "The link asks for what History does not have: a search of 10,002 characters, cut to its first 500" in said
    for piece in ("status “&lt;b&gt;broken&lt;/b&gt;”", "sort “run_id; drop table runs”", "order “sideways”",
                  "since “tomorrow”", "until “0001-01-01”", "archived “maybe”",
                  "the column “&lt;img src=x&gt;” and 1 more"):  # fmt: skip
        assert piece in said
    assert "<img" not in said
    assert (table.get("ids"), "No run matches" in said) == (None, True)  # nobody wrote that search
    assert at.query_params["columns"] == "seed"
    assert "sort" not in at.query_params


def test_values_that_no_run_has_stay_in_the_filter_and_find_nothing(open_page: Open, store: Store) -> None:
    fill(store, 2)
    at = clean(open_page("history", fake_app.stored_services(store), pair="gone+pair", tag="no such tag"))
    assert "No run matches" in html(at)
    assert at.multiselect(key="history_pair").value == ["gone+pair"]
    at.button(key="history_clear").click().run()
    assert 'data-count="2"' in html(clean(at))


# -- selection and refresh ---------------------------------------------------------------------------------------------


def test_a_selection_stays_with_its_runs_when_new_ones_move_the_rows(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 26)
    at = clean(open_page("history", fake_app.stored_services(store)))
    table["click"] = tables.Clicked(selected=(f"{25:026d}", f"{1:026d}"))
    clean(at.run())
    assert table["selected"] == [f"{1:026d}", f"{25:026d}"]
    assert 'data-selected="2"' in html(at)
    fake_app.keep(store, f"{99:026d}", CHAIN[:1], sample.spec(), after_s=9999)
    store.flush()
    at.button(key="history_refresh").click().run()
    assert table["ids"][0] == f"{99:026d}"
    assert f"{1:026d}" not in table["ids"]  # moved to the second page
    assert table["selected"] == [f"{1:026d}", f"{25:026d}"]
    table["click"] = tables.Clicked(selected=())  # unticks what is in view, which 1 is not
    clean(at.run())
    assert table["selected"] == [f"{1:026d}"]
    store.delete([f"{1:026d}"])
    clean(at.run())
    assert table["selected"] == []
    assert "data-selected" not in html(at)


def test_the_selection_goes_to_compare_in_its_order(open_page: Open, store: Store, table: dict[str, Any]) -> None:
    fill(store, 3)
    at = clean(open_page("history", fake_app.stored_services(store)))
    table["click"] = tables.Clicked(selected=(f"{1:026d}", f"{0:026d}"))
    clean(at.run())
    clean(at.button(key="selection_compare").click().run())
    assert at.query_params["runs"] == f"{1:026d},{0:026d}"
    assert "data-verdict" in html(at)


def test_more_runs_than_compare_takes_can_be_selected_but_not_sent_there(
    open_page: Open, store: Store, table: dict[str, Any]
) -> None:
    fill(store, 12)
    at = clean(open_page("history", fake_app.stored_services(store)))
    table["click"] = tables.Clicked(selected=(f"{1:026d}",))
    clean(at.run())
    assert not at.button(key="selection_compare").disabled
    clean(at.button(key="selection_all").click().run())
    assert len(table["selected"]) == 12
    assert at.button(key="selection_compare").disabled
    clean(at.button(key="selection_none").click().run())
    assert table["selected"] == []


def test_the_list_asks_the_store_as_often_for_many_runs_as_for_few(
    open_page: Open, store: Store, table: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = fake_app.stored_services(store)
    read = store.database.read
    times = 0

    def counted() -> Any:
        nonlocal times
        times += 1
        return read()

    monkeypatch.setattr(store.database, "read", counted)
    asked = []
    for number in (2, 25):
        fill(store, number)
        store.flush()
        at = clean(open_page("history", app))
        table["click"] = tables.Clicked(selected=tuple(table["ids"]))
        clean(at.run())
        times = 0
        clean(at.run())
        asked.append(times)
    assert asked[0] == asked[1]
