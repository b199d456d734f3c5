"""Links of the History page: what they say comes back, defaults vanish, and nothing in them can break the page."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from pages.ui.history import link
from pages.ui.history.filters import run_filter
from pages.ui.history.link import ARCHIVED, NAMES, USUAL, View
from pages.ui.history.tables import COLUMNS, DEFAULT, SORTS
from pages.ui.kit.palette import STATUSES

printable = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40)
several = st.lists(printable, unique=True, max_size=5).map(tuple)
views = st.builds(
    View,
    text=printable | st.just(""),
    status=st.lists(st.sampled_from(list(STATUSES)), unique=True).map(tuple),
    pair=several,
    drafter=several,
    shape=several,
    rule=several,
    tag=several,
    since=st.none() | st.dates(date(2000, 1, 1), date(2099, 12, 31)),
    until=st.none() | st.dates(date(2000, 1, 1), date(2099, 12, 31)),
    archived=st.sampled_from(ARCHIVED),
    sort=st.sampled_from(sorted(SORTS)),
    descending=st.booleans(),
    columns=st.lists(st.sampled_from(list(COLUMNS)), unique=True, min_size=1).map(tuple),
)


@given(views)
def test_a_view_comes_back_from_its_link(view: View) -> None:
    assert link.read(link.query(view)) == (view, [])


def test_the_usual_view_has_no_parameters() -> None:
    assert link.query(USUAL) == {}
    assert link.read({}) == (USUAL, [])
    assert USUAL.columns == DEFAULT


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.text(max_size=60), max_size=4)))
def test_whatever_a_link_holds_gives_a_view_that_can_be_shown_and_linked_again(asked: dict[str, list[str]]) -> None:
    view, wrong = link.read(asked)
    assert link.read(link.query(view)) == (view, [])
    assert view.sort in SORTS
    assert set(view.columns) <= set(COLUMNS)
    run_filter(view)
    assert all(len(said) < 200 for said in wrong)


def test_more_values_than_a_filter_takes_are_cut_and_said() -> None:
    view, wrong = link.read({"tag": [f"t{n}" for n in range(60)]})
    assert len(view.tag) == 50
    assert wrong == ["60 values of tag, of which the first 50 are kept"]
