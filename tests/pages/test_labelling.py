"""Naming, tagging, archiving and deleting stored runs from the page, and names wherever runs are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

import pytest
from streamlit.testing.v1 import AppTest

from core.errors import StorageUnavailable
from pages.ui.kit import services as root
from pages.ui.kit.services import Services
from storage.labels import MAX_NAME, MAX_NOTE, MAX_TAG, MAX_TAGS, Labels
from storage.queries import Runs
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

ROUNDS = [sample.chain(["accepted", "rejected"], i) for i in range(3)]
FIRST, SECOND = f"{1:026d}", f"{2:026d}"

Ask = Callable[..., AppTest]


@pytest.fixture
def app(store: Store) -> Iterator[Services]:
    """Two runs that ended."""
    for number in (1, 2):
        fake_app.keep(store, f"{number:026d}", ROUNDS, sample.spec(prompt=f"Prompt {number}"), after_s=number)
    made = fake_app.stored_services(store)
    root.use(made)
    yield made
    root.use(None)


@pytest.fixture
def dialog(app: Services) -> Ask:
    """``dialog(name, argument)`` opens one of the dialogs: what a page's button does."""

    def opened(name: str, argument: object) -> AppTest:
        script = f"from pages.ui.history import labelling\nlabelling.{name}({argument!r})"
        at = AppTest.from_string(script, default_timeout=30).run()
        assert not at.exception
        return at

    return opened


def labels(app: Services, run_id: str = FIRST) -> Labels:
    """What the store has of the run."""
    assert app.runs is not None
    return app.runs.labels([run_id])[run_id]


def save(at: AppTest) -> AppTest:
    """Press the dialog's own button."""
    at.button(key="decide_yes").click().run()
    assert not at.exception
    return at


def test_name_tags_and_note_of_a_run_are_saved_together(dialog: Ask, app: Services) -> None:
    at = dialog("edit", FIRST)
    at.text_input(key=f"name_{FIRST}").set_value("  My\nrun ")
    at.multiselect(key=f"runtags_{FIRST}").set_value(["paper", "fast"])
    at.text_area(key=f"note_{FIRST}").set_value("Line one\nline two")
    save(at)
    assert labels(app) == Labels("done", "My run", "Line one\nline two", ("fast", "paper"))
    at = dialog("edit", FIRST)
    assert at.text_input(key=f"name_{FIRST}").value == "My run"
    assert at.multiselect(key=f"runtags_{FIRST}").value == ["fast", "paper"]
    at.text_input(key=f"name_{FIRST}").set_value("")
    at.multiselect(key=f"runtags_{FIRST}").set_value(["fast"])
    at.text_area(key=f"note_{FIRST}").set_value("")
    save(at)
    assert labels(app) == Labels("done", tags=("fast",))


@pytest.mark.parametrize(
    ("name", "note", "tags", "said"),
    [
        ("n" * 10_000, "", [], f"A name has at most {MAX_NAME} characters, and this one has 10,000: shorten it."),
        ("", "n" * (MAX_NOTE + 1), [], "A note has at most 20,000 characters, and this one has 20,001: shorten it."),
        ("", "", ["t" * 10_000], f"A tag has at most {MAX_TAG} characters, and this one has 10,000: shorten it."),
        ("", "", [f"t{n}" for n in range(MAX_TAGS + 1)], f"A run has at most {MAX_TAGS} tags"),
    ],
    ids=["long name", "long note", "long tag", "too many tags"],
)
def test_what_the_store_refuses_is_said_and_nothing_of_it_is_saved(
    dialog: Ask, app: Services, name: str, note: str, tags: list[str], said: str
) -> None:
    at = dialog("edit", FIRST)
    at.text_input(key=f"name_{FIRST}").set_value(name or "a good name")
    at.text_area(key=f"note_{FIRST}").set_value(note or "a good note")
    at.multiselect(key=f"runtags_{FIRST}").set_value(tags or ["good"])
    save(at)
    assert escape(said, quote=True) in html(at)
    assert labels(app) == Labels("done")


def test_hostile_labels_are_kept_found_and_shown_as_text(open_page: Open, dialog: Ask, app: Services) -> None:
    at = dialog("edit", FIRST)
    at.text_input(key=f"name_{FIRST}").set_value(sample.HOSTILE + "\x07")
    at.multiselect(key=f"runtags_{FIRST}").set_value(["<b>t</b>", "# *md*"])
    at.text_area(key=f"note_{FIRST}").set_value("<script>1</script>\n**bold** [x](javascript:1)\x1b")
    save(at)
    shown = open_page("history", app, run=FIRST)
    assert not shown.exception
    drawn = html(shown)
    assert "<script" not in drawn and "<img" not in drawn and "<b>t</b>" not in drawn
    assert "&lt;img src=x onerror=&quot;window.hacked=1" in drawn
    assert "⟨U+202E⟩" in drawn
    assert "&lt;b&gt;t&lt;/b&gt;" in drawn and "# *md*" in drawn
    assert "&lt;script&gt;1&lt;/script&gt;\n**bold** [x](javascript:1)" in drawn
    found = open_page("history", app, q="<img src=x", tag="# *md*")
    assert 'data-count="1"' in html(found)
    doomed = dialog("delete", [FIRST])
    assert "&lt;img src=x" in html(doomed) and "<img" not in html(doomed)


def test_tags_of_several_runs_are_added_and_taken_away_at_once(dialog: Ask, app: Services, store: Store) -> None:
    store.tag([FIRST], add=["old", "mine"])
    at = dialog("retag", [FIRST, SECOND])
    assert at.multiselect(key="tags_remove").options == ["mine", "old"]
    at.multiselect(key="tags_add").set_value(["new"])
    at.multiselect(key="tags_remove").set_value(["old"])
    save(at)
    assert (labels(app).tags, labels(app, SECOND).tags) == (("mine", "new"), ("new",))
    at = dialog("retag", [FIRST, SECOND])
    at.multiselect(key="tags_add").set_value(["new"])
    at.multiselect(key="tags_remove").set_value(["new"])
    save(at)
    assert "cannot be added and taken away at once" in html(at)


def test_a_deletion_names_what_goes_and_how_many_and_does_it_for_good(dialog: Ask, app: Services, store: Store) -> None:
    store.rename(FIRST, "the first")
    at = dialog("delete", [FIRST, SECOND])
    drawn = html(at)
    assert 'data-delete="2"' in drawn and "2 runs" in drawn
    assert "the first" in drawn and "Prompt 2" in drawn
    assert "This cannot be undone." in drawn
    save(at)
    stored = Runs(store)
    assert stored.list() == []
    assert stored.rounds(FIRST) == []


def test_of_many_runs_the_question_names_some_and_counts_the_rest(dialog: Ask, store: Store) -> None:
    ids = [f"{number:026d}" for number in range(100, 112)]
    for place, run_id in enumerate(ids):
        fake_app.keep(store, run_id, ROUNDS[:1], sample.spec(), after_s=100 + place)
    store.flush()
    drawn = html(dialog("delete", ids))
    assert 'data-delete="12"' in drawn
    assert drawn.count("Copy this.") == 8
    assert "and 4 more" in drawn


def test_cancel_deletes_nothing(dialog: Ask, app: Services) -> None:
    at = dialog("delete", [FIRST])
    at.button(key="decide_no").click().run()
    assert labels(app).status == "done"


def test_a_run_that_still_runs_cannot_be_deleted_and_the_others_stay_with_it(
    dialog: Ask, app: Services, store: Store
) -> None:
    store.submitted(f"{3:026d}", sample.spec(), "s", fake_app.NOON)
    store.flush()
    at = dialog("delete", [FIRST, f"{3:026d}"])
    assert "1 of them is still queued: stop what runs before deleting it." in html(at)
    assert at.button(key="decide_yes").disabled
    assert "It is still queued" in html(dialog("delete", [f"{3:026d}"]))
    assert Runs(store).count() == 3


def test_a_run_that_began_between_the_question_and_the_answer_is_kept_with_a_sentence(
    dialog: Ask, app: Services, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.submitted(f"{3:026d}", sample.spec(), "s", fake_app.NOON)
    store.flush()
    monkeypatch.setattr(app.runs, "labels", lambda ids: {run_id: Labels("done") for run_id in ids})
    at = save(dialog("delete", [f"{3:026d}"]))
    assert "still queued: stop it before deleting it." in html(at)
    assert Runs(store).count() == 3


def test_a_locked_database_is_said_where_it_was_asked_for(
    dialog: Ask, app: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> int:
        raise StorageUnavailable("The database is busy: try again.")

    monkeypatch.setattr(app.keeper, "delete", locked)
    at = save(dialog("delete", [FIRST]))
    assert "The database is busy: try again." in html(at)
    assert labels(app).status == "done"


def test_an_archived_run_leaves_the_list_is_found_on_its_shelf_restored_and_deleted(
    open_page: Open, dialog: Ask, app: Services
) -> None:
    at = open_page("history", app, run=FIRST)
    at.button(key="archive_opened").click().run()
    assert labels(app).archived
    assert ">archived<" in html(at)
    assert "archive_opened" not in [button.key for button in at.button]
    assert 'data-count="1"' in html(open_page("history", app))
    assert 'data-count="1"' in html(open_page("history", app, archived="only"))
    assert 'data-count="2"' in html(open_page("history", app, archived="all"))
    at = open_page("history", app, run=FIRST)
    at.button(key="restore_opened").click().run()
    assert not labels(app).archived
    assert app.keeper is not None
    app.keeper.archive([FIRST])
    save(dialog("delete", [FIRST]))
    assert 'data-count="1"' in html(open_page("history", app, archived="all"))


def test_a_deleted_run_is_gone_from_the_page_even_while_the_queue_remembers_it(
    open_page: Open, dialog: Ask, app: Services
) -> None:
    jobs = app.jobs
    assert isinstance(jobs, fake_app.FakeJobs)
    jobs.put(fake_app.over(ROUNDS, run_id=FIRST), ROUNDS)
    assert "No such run" not in html(open_page("history", app, run=FIRST))
    save(dialog("delete", [FIRST]))
    assert "No such run" in html(open_page("history", app, run=FIRST))
    assert "No run yet" in html(open_page("live", app, run=FIRST))


def test_names_stand_in_the_runs_head_and_on_compare(open_page: Open, app: Services, store: Store) -> None:
    store.rename(FIRST, "base <i>line</i>")
    head = html(open_page("history", app, run=FIRST))
    assert "base &lt;i&gt;line&lt;/i&gt; <small>Run of" in head
    at = open_page("compare", app, runs=f"{FIRST},{SECOND}")
    assert not at.exception
    assert "base &lt;i&gt;line&lt;/i&gt; · prompt_lookup chain:4" in html(at)
    assert "base ‹i›line‹/i›" in at.selectbox(key="compare_baseline").options[0]
    assert any("base ‹i›line‹/i›" in option for option in at.multiselect(key="compare_chosen").options)
