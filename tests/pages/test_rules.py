"""The Rule lab page without a browser: links, presets, stored positions, every tab and figure, and bad values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from core.lab.figure_notes import NOTES
from core.records import ROOT, Position, Round, TopToken
from core.rules.catalogue import LAB_RULES, RULES
from pages.ui.kit import lab_link
from pages.ui.kit.lab_link import Stored
from pages.ui.kit.services import Services
from pages.ui.live import form_values
from storage.store import Store
from tests.helpers import fake_app, sample
from tests.pages.conftest import Open, html

TABS = ("all", "one", "drawn", "paper", "article")


def nothing_stored() -> Services:
    """Services without a store."""
    return fake_app.fake_services(fake_app.FakeJobs(), None, "The disk is full.")


def clean(at: AppTest) -> AppTest:
    """The page, which raised nothing."""
    assert not at.exception, at.exception
    return at


def linked(at: AppTest, name: str) -> str:
    """A parameter of the page's address."""
    return "".join(at.query_params[name])


def row(at: AppTest, name: str) -> list[str]:
    """Texts of a table's row of this name, as read from left to right."""
    found = re.search(rf'<tr data-row="{re.escape(name)}".*?</tr>', html(at), re.DOTALL)
    assert found is not None, f"no row {name}"
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", found.group(), re.DOTALL)
    return [re.sub(r"<[^>]+>", " ", cell).strip() for cell in cells]


def drafted(text: str = " the", index: int = 0) -> Round:
    """A chain round whose first position has p and q."""
    top = (TopToken(7, text, 0.6, 0.3), TopToken(8, " a", 0.25, 0.5))
    one = sample.chain(["accepted", "rejected"], index)
    tested = Position(ROOT, top, p_rest=0.15, q_rest=0.2)
    return replace(one, positions=(tested, *one.positions))


# -- input ----------------------------------------------------------------------------------------------------------


def test_the_lab_opens_with_the_articles_tokens_and_every_rule(open_page: Open):
    at = clean(open_page("rules", nothing_stored()))
    assert linked(at, "preset") == "article"
    assert ">0.8000<" in html(at)
    assert row(at, "lossless")[1:4] == ["0.800", "0.0000", "0.0000"]
    assert row(at, "lenience")[1:4] == ["1", "0.2000", "0.1212"]
    assert row(at, "spec_cascade")[1:6] == ["0.700", "0.2875", "0.2844", "0.1625", "0.0613"]
    assert row(at, "lenience")[-3:] == ["0.600", "0.100", "0.300"]
    assert all(f'data-row="{rule.name}"' in html(at) for rule in LAB_RULES)


def test_another_preset_changes_the_table_and_the_link(open_page: Open):
    at = open_page("rules", nothing_stored())
    at.selectbox(key="lab_from").set_value("unrelated").run()
    assert "0.1200" in html(clean(at))
    assert linked(at, "preset") == "unrelated"


def test_a_link_brings_its_own_p_and_q(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), p="2,6", q="1,1"))
    assert at.selectbox(key="lab_from").value == "own"
    assert row(at, "lossless")[-2:] == ["0.250", "0.750"]
    assert "p as given sums to 8 and q as given sums to 2: scaled to 1." in [caption.value for caption in at.caption]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"p": "nan,1", "q": "1,1"}, "p of A is empty or not a number"),
        ({"p": "1,-1", "q": "1,1"}, "p of B is -1: a probability can&#x27;t be negative"),
        ({"p": "0,0", "q": "1,1"}, "p is all zero"),
        ({"p": "1,x", "q": "1,1"}, "&#x27;x&#x27; in p is not a number"),
        ({"p": "1,1,1", "q": "1,1"}, "3 values of p and 2 of q"),
        ({"p": "1", "q": "1"}, "1 tokens"),
        ({"p": ",".join(["1"] * 40), "q": ",".join(["1"] * 40)}, "the lab takes 2 to"),
        ({"preset": "<script>"}, "preset is not known"),
        ({"run": "../etc/passwd"}, "The link names no run"),
        ({"run": sample.RUN_ID, "round": "x"}, "not a whole number"),
    ],
)
def test_a_link_that_can_not_be_read_says_why_and_shows_the_article(open_page: Open, query: dict[str, str], says: str):
    at = clean(open_page("rules", nothing_stored(), **query))
    assert says in html(at)
    assert "<script>" not in html(at)
    assert row(at, "lossless")[1] == "0.800"


def test_a_link_reads_back_what_it_was_made_from():
    pair = lab_link.read({"p": "2,6", "q": "1,1"})
    for shown in ("flat", Stored(sample.RUN_ID, 3, -1), pair):
        assert shown is not None and lab_link.read(lab_link.query(shown)) == shown
    assert lab_link.read({}) is None


def test_a_stored_position_is_taken_from_its_run_and_keeps_the_rest(open_page: Open, store: Store):
    fake_app.keep(store, sample.RUN_ID, [sample.chain(["accepted"]), drafted(index=1)])
    at = clean(open_page("rules", fake_app.stored_services(store), run=sample.RUN_ID, round="1", at="-1"))
    assert at.selectbox(key="lab_from").value == "stored"
    lossless = row(at, "lossless")
    assert lossless[1] == "0.700" and lossless[-3:] == ["0.600", "0.250", "0.150"]
    assert any("“rest” stands for every token" in caption.value for caption in at.caption)
    assert linked(at, "run") == sample.RUN_ID


@pytest.mark.parametrize(("asked", "shown"), [("-5", 0), ("-1", 0), ("2", 2), ("3", 2), ("99999", 2)])
def test_a_link_to_a_round_that_is_not_there_shows_the_nearest(open_page: Open, store: Store, asked: str, shown: int):
    fake_app.keep(store, sample.RUN_ID, [drafted(index=index) for index in range(3)])
    at = clean(open_page("rules", fake_app.stored_services(store), run=sample.RUN_ID, round=asked, at="-1"))
    assert at.number_input[0].label == "Round"
    assert at.number_input[0].value == shown + 1
    assert linked(at, "round") == str(shown)


def test_a_link_to_a_run_that_is_not_there_says_so(open_page: Open, store: Store):
    fake_app.keep(store, "1" * 26, [drafted()])
    at = clean(open_page("rules", fake_app.stored_services(store), run=sample.RUN_ID, round="0", at="-1"))
    assert "The link names a run that is not here" in html(at)


def test_a_round_without_a_tested_position_says_so(open_page: Open, store: Store):
    fake_app.keep(store, sample.RUN_ID, [sample.plain()])
    at = clean(open_page("rules", fake_app.stored_services(store), run=sample.RUN_ID))
    assert "Nothing was drafted in this round" in html(at)


def test_hostile_token_texts_stay_text(open_page: Open, store: Store):
    fake_app.keep(store, sample.RUN_ID, [drafted(sample.HOSTILE)])
    for tab in ("all", "one"):
        at = clean(open_page("rules", fake_app.stored_services(store), run=sample.RUN_ID, tab=tab))
        assert "<img" not in html(at) and "<script" not in html(at) and "&lt;img" in html(at)
    for chart in at.get("plotly_chart"):
        assert "<img" not in chart.proto.spec  # type: ignore[attr-defined]


def test_without_a_store_or_a_run_a_stored_position_can_not_be_chosen(open_page: Open, store: Store):
    at = open_page("rules", nothing_stored())
    at.selectbox(key="lab_from").set_value("stored").run()
    assert "The disk is full." in html(clean(at))
    at = open_page("rules", fake_app.stored_services(store))
    at.selectbox(key="lab_from").set_value("stored").run()
    assert "No drafting run yet" in html(clean(at))


# -- tabs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("preset", ["article", "heavy_tailed"])
def test_every_tab_draws_a_table_or_a_figure_at_small_and_large_vocabularies(open_page: Open, tab: str, preset: str):
    at = clean(open_page("rules", nothing_stored(), tab=tab, preset=preset))
    assert (linked(at, "tab"), linked(at, "preset")) == (tab, preset)
    assert "sl-bad" not in html(at)
    assert 'class="sl-cmp sl-lab"' in html(at) or at.get("plotly_chart")


@pytest.mark.parametrize("rule", [rule.name for rule in LAB_RULES])
def test_every_rule_draws_in_detail_even_where_p_and_q_share_no_token(open_page: Open, rule: str):
    at = clean(open_page("rules", nothing_stored(), tab="one", rule=rule, p="1,0,0", q="0,0.5,0.5"))
    assert at.selectbox(key="lab_rule").value == rule
    assert "sl-bad" not in html(at)


def test_a_rules_parameter_changes_its_law_in_every_tab(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="one", rule="lenience"))
    at.number_input(key="lab_v_ell").set_value(0.8).run()
    assert row(clean(at), "B")[5:7] == ["1", "0.150"]
    assert "lenience:0.8" in html(at)


def test_the_redraw_is_a_choice_and_a_law_that_leaves_the_matched_support_says_how_much(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="one", rule="spec_cascade"))
    at.selectbox(key="lab_v_redraw").set_value("target").run()
    assert row(clean(at), "C")[4:7] == ["0", "0.200", "0.060"]
    assert any("6.0 % of the law escapes" in caption.value for caption in at.caption)


def test_drawing_agrees_with_the_exact_law(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="drawn", rule="lenience"))
    at.number_input(key="lab_v_ell").set_value(0.8).run()
    assert "They agree." in html(clean(at))
    assert row(at, "A")[3:] == ["0.6000", "✓"]
    assert row(at, "tokens per round")[3] == "4.5244"
    at.selectbox(key="lab_drawing").set_value("deterministic").run()
    assert row(clean(at), "A")[3] == "0.6250"


def test_every_rule_is_tested_by_drawing_when_asked(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="drawn"))
    assert "test_lossless" not in html(at)
    at.number_input(key="lab_rounds").set_value(400)
    at.button(key="lab_test").click().run()
    assert row(clean(at), "test_lossless")[1:3] == ["p", "0.0000"]
    assert row(at, "test_lenience")[1:3] == ["its own law", "0.2000"]
    for name in (*(rule.name for rule in LAB_RULES), "block"):
        assert row(at, f"test_{name}")[-1] == "✓ follows"


def test_the_lab_starts_with_what_the_live_form_starts_with(open_page: Open):
    at = clean(open_page("rules", nothing_stored()))
    for entry in RULES:
        for one in entry.parameters:
            if f"lab_v_{one.name}" in at.session_state:
                assert at.session_state[f"lab_v_{one.name}"] == form_values.DEFAULTS[one.name]
    assert at.session_state["lab_v_ell"] == 0.5 and at.session_state["lab_v_redraw"] == "target_in_set"


def test_figure_2_keeps_the_redraw_of_the_papers_equation_13(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="paper"))
    assert at.selectbox(key="lab_f2_redraw").value == "draft_in_set"
    assert at.number_input(key="lab_f2_ell").value == 0.8


def test_block_verification_is_drawn_as_a_chain_and_refuses_siblings(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="drawn", rule="block"))
    assert row(at, "tokens per round")[3] == "3.5151"
    at.selectbox(key="lab_drawing").set_value("with_replacement").run()
    assert "Block verification judges a chain" in html(clean(at))


@pytest.mark.parametrize("figure", NOTES)
def test_every_figure_of_the_paper_draws_with_its_equation_and_differences(open_page: Open, figure: str):
    at = open_page("rules", nothing_stored(), tab="paper")
    at.segmented_control(key="lab_figure").set_value(figure).run()
    text = html(clean(at))
    assert NOTES[figure].title.split("·")[0] in text
    assert "Assumed here" in text and "Where print or code differ" in text


def test_a_figure_without_meaning_for_equal_p_and_q_says_so(open_page: Open):
    at = open_page("rules", nothing_stored(), tab="paper", p="1,1", q="1,1")
    at.segmented_control(key="lab_figure").set_value("figure8a").run()
    assert "p and q are equal" in html(clean(at))


def test_table_1_says_what_the_printed_formulas_sum_to(open_page: Open):
    at = open_page("rules", nothing_stored(), tab="paper")
    at.segmented_control(key="lab_figure").set_value("table1").run()
    assert row(clean(at), "Overshoot ceiling")[4] == "1.000 1.000 1.000 1.030"


# -- the article's examples -----------------------------------------------------------------------------------------


def test_the_articles_examples_have_its_numbers(open_page: Open):
    at = clean(open_page("rules", nothing_stored(), tab="article"))
    assert row(at, "1") == ["A", "0.7", "0.833", "yes", "✓ accepted"]
    assert row(at, "2") == ["C", "0.9", "0.667", "no", "✗ rejected"]
    assert row(at, "3") == ["B", "–", "–", "–", "· unreached"]
    assert "<dt>Emitted</dt><dd>A, B</dd><dt>Discarded</dt><dd>C, B</dd>" in html(at)
    assert row(at, "First") == ["First", "0.8", "1", "3.3616", "18", "5.355", "1.868 ×", "4.90 ms"]
    assert row(at, "Second") == ["Second", "0.9", "3", "4.0951", "26", "6.349", "1.575 ×", "6.74 ms"]
    assert "the first is faster, 1.868 × against 1.575 ×" in html(at)


def test_the_articles_examples_can_be_changed(open_page: Open):
    at = open_page("rules", nothing_stored(), tab="article")
    at.text_input(key="lab_a_draft").set_value("A, B")
    at.text_input(key="lab_a_draws").set_value("0.7, 0.9").run()
    assert "<dt>Emitted</dt><dd>A, B, A</dd><dt>Last token</dt><dd>bonus</dd>" in html(clean(at))
    at.number_input(key="lab_b_draft_Second").set_value(1.0).run()
    assert "the second is faster" in html(clean(at))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("lab_a_draws", "0.7", "3 candidates need 3 draws, not 1"),
        ("lab_a_draws", "0.7, 1, 0", "outside 0 ≤ u &lt; 1"),
        ("lab_a_draft", "A, <b>, C", "&lt;b&gt;&#x27; is not in the vocabulary"),
        ("lab_a_p", "0.5, nan, 1", "p of B is empty or not a number"),
        ("lab_a_final", "", "The final draw is one number"),
    ],
)
def test_a_bad_value_in_the_articles_round_is_explained_in_a_sentence(open_page: Open, key: str, value: str, says: str):
    at = open_page("rules", nothing_stored(), tab="article")
    at.text_input(key=key).set_value(value).run()
    assert says in html(clean(at))
