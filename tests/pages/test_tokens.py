"""Chips, rounds, trees and glyphs: what the page says of each candidate, and that model text stays inert."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.records import ROOT, Distortion
from core.types import ChainShape, NoShape, ShapeSpec, TreeShape
from pages.ui.kit.glyphs import chip_text, flow_text
from pages.ui.rounds import tokens, trees
from tests.helpers import sample
from tests.helpers.markup import Tags

TAGS = {"span", "div", "ul", "li", "i", "br", "details", "summary"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"),
        ("\n\n", "⏎⏎"),
        ("\tx", "⇥x"),
        ("\x1b[0m", "⟨U+001B⟩[0m"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\u200b", "⟨U+200B⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#x27;"),
        ("⟨e2⟩", "⟨e2⟩"),
        ("é漢🙂", "é漢🙂"),
    ],
)
def test_white_space_control_characters_and_markup_are_visible_in_a_chip(text: str, shown: str) -> None:
    assert chip_text(text) == shown


def test_running_text_breaks_lines_and_shows_the_break() -> None:
    assert flow_text("a b\nc") == 'a b<i class="sl-ws">⏎</i>\nc'
    assert flow_text("👩\u200d🚀") == "👩\u200d🚀"


def test_markup_in_a_token_makes_no_element_and_no_attribute() -> None:
    rounds = [sample.chain(["accepted", "rejected"], 0, text=sample.HOSTILE, last=sample.HOSTILE)]
    seen = Tags(trees.rows(rounds, plain=False) + tokens.output(rounds, plain=False))
    assert set(seen.names) <= TAGS
    assert set(seen.attributes) <= {"class", "title", "tabindex", "role", "aria-label"}
    assert "<img src=x" in seen.text
    for value in seen.attributes["aria-label"]:  # the sanitiser of st.html would drop these
        assert "-->" not in value and "</style" not in value


def test_a_candidates_chip_tells_fate_token_p_q_score_accept_probability_and_coin() -> None:
    html = tokens.candidate(sample.node("rejected", " B", token=42, p=0.25, u=0.75))
    label = Tags(html).attributes["aria-label"][0]
    assert label == ("✗ rejected “␣B” · token 42\np 0.250 · q 1 · score 0.600\ncoin u 0.750 ≥ accept probability 0.250")
    assert 'class="sl-chip sl-rejected" tabindex="0"' in html


def test_an_unreached_candidate_says_that_it_was_never_tested_and_a_close_coin_is_flagged() -> None:
    label = Tags(tokens.candidate(sample.node("unreached"))).attributes["aria-label"][0]
    assert "never tested" in label and "p –" in label
    close = replace(sample.node("accepted"), near_threshold=True)
    assert "within 1e-5 of its threshold" in Tags(tokens.candidate(close)).attributes["aria-label"][0]


def test_a_correction_and_a_bonus_are_named_and_take_their_text_from_the_position() -> None:
    row = sample.chain(["accepted", "rejected"], last="\ufffd")
    named = replace(row.positions[0], top=(replace(row.positions[0].top[0], text="⟨e2⟩"),))
    assert "⟨e2⟩</span>" in tokens.committed(replace(row, positions=(named,)))
    assert "sl-correction" in tokens.committed(row)
    assert "sl-bonus" in tokens.committed(sample.chain(["accepted"]))
    undrafted = tokens.committed(sample.plain())  # all of no candidates were accepted, which earns no bonus
    assert "sl-plain" in undrafted
    assert "sl-bonus" not in undrafted
    assert tokens.committed(sample.chain(["accepted"], source="none")) == ""


def test_the_output_marks_each_tokens_origin_and_is_the_text() -> None:
    rounds = [
        sample.chain(["accepted", "accepted", "rejected"], 0, " a", " b"),
        sample.chain(["accepted"], 1, " c", " d"),
    ]
    html = tokens.output(rounds, plain=False)
    assert Tags(html).text == " a a b c d"
    order = [name.split()[-1] for name in Tags(html).attributes["class"]]
    assert order == ["sl-accepted", "sl-correction", "sl-accepted", "sl-bonus"]
    plain = tokens.output([sample.plain(0), sample.plain(1)], plain=True)
    assert plain == '<span class="sl-o sl-plain"> word word</span>'


def test_a_chain_is_one_line_and_a_tree_branches_where_its_siblings_part() -> None:
    chain = trees.rows([sample.chain(["accepted", "rejected", "unreached"])], plain=False)
    assert "<ul" not in chain and chain.count("sl-chip") == 4
    tree = trees.rows([sample.tree()], plain=False)
    assert tree.count('<ul class="sl-fork">') == 2  # at the root, and below B
    assert tree.count('<li class="sl-on">') == 2  # B, then Ba
    first = tree.index("␣A<")
    assert first < tree.index("␣Aa<") < tree.index("␣B<") < tree.index("␣Ba<") < tree.index("␣Bb<")


def test_a_trees_round_ends_in_the_branch_that_its_path_took() -> None:
    html = trees.rows([sample.tree(0)], plain=False)
    after = html.partition("␣Ba</span>")[2]
    assert after.startswith("<span class=sl-to>→</span>"), "the bonus follows the last accepted candidate"
    assert html.count("sl-bonus") == 1


def test_a_trees_round_whose_candidates_are_all_rejected_ends_below_them() -> None:
    nodes = tuple(sample.node("rejected", text, ROOT, 1, token=at) for at, text in enumerate((" A", " B"), start=1))
    html = trees.rows([sample.finish(nodes, 0, (9,), (" end",), "correction")], plain=False)
    assert html.count("<li") == 3
    assert '<li class="sl-on"><span class=sl-to>→</span>' in html


@pytest.mark.parametrize(
    ("distortion", "told"),
    [
        (Distortion(0.02, 0.064, 0.0, None), "≠ TV 6.4 %"),
        (Distortion(None, 0.2, 0.1, None), "1 can emit what the reference law never does and have no KL"),
        (Distortion(1e-15, 1e-8, 0.0, None), None),
        (None, None),
    ],
)
def test_a_round_that_emitted_another_law_is_marked_and_rounding_is_not(
    distortion: Distortion | None, told: str | None
) -> None:
    one = sample.chain(["accepted"])
    one = replace(one, positions=(replace(one.positions[0], distortion=distortion),), distortion_s=0.001)
    html = trees.rows([one], plain=False)
    assert ("≠ TV" in html) is (told is not None)
    assert told is None or told in html


def test_a_large_trees_unreached_branches_are_folded_but_all_there() -> None:
    nodes = [sample.node("rejected", f" {i}", ROOT, 1) for i in range(3)]
    nodes += [sample.node("unreached", f" {i}a", i - 3, 2) for i in range(3, 6)]
    nodes += [sample.node("unreached", f" x{i}", 3, 3) for i in range(10)]
    html = trees.rows([sample.finish(tuple(nodes), 0, (99,), (" end",), "correction")], plain=False)
    assert html.count("<summary>10 unreached</summary>") == 1  # below 3a, which stands in one row with 0
    assert html.count("sl-chip") == len(nodes) + 1


def test_a_chain_of_256_candidates_is_drawn_without_recursion() -> None:
    assert trees.rows([sample.chain(("accepted",) * 256)], plain=False).count("sl-chip") == 257


def test_blocks_keep_their_borders_while_the_window_slides() -> None:
    rounds = [sample.plain(i) for i in range(45)]
    assert [block[0].index for block in trees.blocks(rounds[13:])] == [13, 20, 30, 40]
    assert trees.rows(trees.blocks(rounds)[1], plain=True) == trees.rows(trees.blocks(rounds[10:])[0], plain=True)


@pytest.mark.parametrize(
    ("shape", "dots"),
    [
        (NoShape(), 0),
        (ChainShape(gamma=4), 4),
        (ChainShape(gamma=200), 48),
        (TreeShape(steps=3, topk=2, nodes=6), 5),
        (TreeShape(steps=6, topk=10, nodes=60), 48),
        (TreeShape(steps=64, topk=64, nodes=257), 48),
    ],
)
def test_the_preview_draws_the_shapes_candidates_closed_under_parents(shape: ShapeSpec, dots: int) -> None:
    parents = trees.preview_parents(shape)
    assert len(parents) == dots
    assert all(parent < index for index, parent in enumerate(parents))
    assert trees.preview(shape).count('class="sl-dot"') == dots


def test_a_trees_preview_is_as_deep_and_as_wide_as_the_shape() -> None:
    parents = trees.preview_parents(TreeShape(steps=3, topk=2, nodes=6))
    depth: list[int] = []
    for parent in parents:
        depth.append(1 if parent == ROOT else depth[parent] + 1)
    assert max(depth) == 3
    assert parents.count(ROOT) == 2
