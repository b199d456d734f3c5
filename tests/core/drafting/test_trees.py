"""Growing drafts: a sampled chain, and beams against a slow reference written from the text of design.md."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from core.drafting.draft import Draft
from core.drafting.growers import BeamGrower, ChainGrower, Grower, grower, scratch_rows
from core.faults import logits_fault
from core.records import ROOT
from core.sampling.distributions import Distributions
from core.sampling.prefix import Prefix
from core.sampling.probability import Certain, Law
from core.types import ChainShape, NoShape, Sampling, ShapeSpec, TreeShape
from tests.helpers.decoding import ask, decode
from tests.helpers.fakes import always, fake_pair, hashed, scripted

CPU = torch.device("cpu")
Path = tuple[int, ...]
Rows = Callable[[Path], Sequence[float]]
"""Probabilities after a path of candidates."""


class Untouched:
    """Distributions of a drafter whose logits already are probabilities; remembers the prefixes it was given."""

    keeps_growth = False
    draws_growth = True

    def __init__(self) -> None:
        self.prefixes: list[list[int]] = []

    def penalised(self, logits: Tensor, prefix: Sequence[int] | Prefix) -> Tensor:
        self.prefixes.append(prefix.ids(CPU)[0].tolist() if isinstance(prefix, Prefix) else list(prefix))
        return logits

    def growth(self, scores: Tensor) -> Tensor:
        return scores

    def draft(self, scores: Tensor) -> Tensor:
        return scores


def grow(one: Grower, rows: Rows) -> Draft:
    """Run a grower to its end over a table."""

    def path(node: int) -> Path:
        return () if node == ROOT else (*path(one.parents[node]), *ids(one, [node]))

    while nodes := one.frontier():
        one.grow([torch.tensor(rows(path(node)), dtype=torch.float64) for node in nodes])
    draft, created = one.finish()
    assert not created or ids(one, created) == list(draft.tokens)
    return draft


def ids(one: Grower, nodes: Sequence[int]) -> list[int]:
    found = one.ids(nodes)
    return found.tolist() if isinstance(found, Tensor) else list(found)


def beams(shape: TreeShape, rows: Rows, depth: int = 64) -> Draft:
    return grow(BeamGrower(shape, depth, Untouched(), [7]), rows)  # type: ignore[arg-type]


def paths(draft: Draft) -> list[Path]:
    """Each node's tokens from the root down."""
    return [tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft.tokens))]


def reference(shape: TreeShape, rows: Rows, depth: int = 64) -> list[Path]:
    """design.md: "each step expands the topk best beams; the best d−1 nodes by cumulative score are kept, closed under
    parents, ties shallower first". Brute force: every path's score is multiplied out anew."""

    def score(path: Path) -> float:
        return math.prod(rows(path[:i])[token] for i, token in enumerate(path))

    every: list[Path] = []
    frontier: list[Path] = [()]
    for _ in range(min(shape.steps, depth)):
        new: list[Path] = []
        for beam in frontier:
            row = rows(beam)
            best = sorted(range(len(row)), key=lambda token, row=row: -row[token])[: shape.topk]
            new += [(*beam, token) for token in best if row[token] > 0]
        every += new
        frontier = sorted(sorted(new, key=lambda path: -score(path))[: shape.topk], key=new.index)
    kept = sorted(every, key=lambda path: (-score(path), len(path)))[: shape.nodes - 1]
    return sorted(kept, key=every.index)


DYADIC = (
    (0.5, 0.25, 0.125, 0.0625, 0.03125),
    (0.75, 0.25, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (0.375, 0.3125, 0.1875, 0.125, 0.0),
)
"""Rows whose products are exact in floating point, so that ties across depths really are ties."""


def dyadic(seed: int) -> Rows:
    def rows(path: Path) -> Sequence[float]:
        digest = hashlib.blake2b(repr((seed, path)).encode(), digest_size=8).digest()
        row = DYADIC[digest[0] % len(DYADIC)]
        order = sorted(range(len(row)), key=lambda i: (digest[1 + i], i))
        return [row[i] for i in order]

    return rows


@st.composite
def shapes(draw: st.DrawFn) -> TreeShape:
    steps, topk = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    most = topk + (steps - 1) * topk * topk
    return TreeShape(steps=steps, topk=topk, nodes=draw(st.integers(2, min(most, 24) + 1)))


# -- beams ----------------------------------------------------------------------------------------------------------


@given(shapes(), st.integers(0, 10_000), st.integers(1, 6))
def test_beams_keep_the_nodes_of_the_slow_reference(shape, seed, depth):
    draft = beams(shape, dyadic(seed), depth)
    assert paths(draft) == reference(shape, dyadic(seed), depth)


@given(shapes(), st.integers(0, 10_000))
def test_what_is_kept_is_a_tree_of_distinct_candidates_with_parents_first(shape, seed):
    draft = beams(shape, dyadic(seed))
    assert all(ROOT <= parent < node for node, parent in enumerate(draft.parents))
    assert len(set(paths(draft))) == len(draft.tokens) <= shape.nodes - 1
    assert all(draft.depth(node) <= shape.steps for node in range(len(draft.tokens)))
    assert draft.drawing == "deterministic"
    assert draft.q == tuple(Certain(token) for token in draft.tokens)


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_one_beam_is_the_chain_of_the_most_probable_tokens(steps, seed):
    draft = beams(TreeShape(steps=steps, topk=1, nodes=steps + 1), rows := dyadic(seed))
    expected: list[int] = []
    for _ in range(steps):
        row = rows(tuple(expected))
        expected.append(row.index(max(row)))
    assert draft.tokens == tuple(expected)
    assert draft.parents == tuple(range(-1, steps - 1))


def test_s5_k1_d6_drafts_a_chain_of_five():
    rows = ([0.6, 0.3, 0.1], [0.1, 0.2, 0.7])
    draft = beams(TreeShape(steps=5, topk=1, nodes=6), lambda path: rows[len(path) % 2])
    assert draft.tokens == (0, 2, 0, 2, 0)
    assert draft.parents == (ROOT, 0, 1, 2, 3)
    assert draft.score == pytest.approx((0.6, 0.7, 0.6, 0.7, 0.6))


S3_K2_D6 = {
    (): (0.5, 0.375, 0.125),
    (0,): (0.75, 0.25, 0.0),
    (1,): (0.5, 0.25, 0.25),
    (0, 0): (0.25, 0.25, 0.5),
    (0, 1): (1.0, 0.0, 0.0),
    (1, 0): (0.875, 0.125, 0.0),
}


def test_s3_k2_d6_keeps_the_five_best_of_ten_candidates():
    """Scores: a .5, b .375, aa .375, ab .125, ba .1875, bb .09375, aac .1875, aaa .09375, baa .1640625, bab .0234375.
    The beams of step 3 are aa and ba; ba and aac tie at .1875, which keeps both."""
    draft = beams(TreeShape(steps=3, topk=2, nodes=6), lambda path: S3_K2_D6[path])
    assert paths(draft) == [(0,), (1,), (0, 0), (1, 0), (0, 0, 2)]
    assert draft.parents == (ROOT, ROOT, 0, 1, 2)
    assert draft.score == (0.5, 0.375, 0.75, 0.5, 0.5)
    assert [draft.depth(node) for node in range(5)] == [1, 1, 2, 2, 3]


def test_equal_scores_go_to_the_shallower_node():
    """b and aa both score .375: two nodes are kept, and b is the shallower."""
    draft = beams(TreeShape(steps=3, topk=2, nodes=3), lambda path: S3_K2_D6[path])
    assert paths(draft) == [(0,), (1,)]


def test_a_certain_child_ties_with_its_parent_and_never_replaces_it():
    draft = beams(TreeShape(steps=4, topk=2, nodes=3), lambda path: [1.0, 0.0])
    assert paths(draft) == [(0,), (0, 0)]


def test_candidates_of_probability_zero_are_not_drafted_even_when_topk_asks_for_more():
    draft = beams(TreeShape(steps=2, topk=3, nodes=13), lambda path: [0.0, 1.0, 0.0] if path else [0.5, 0.5, 0.0])
    assert paths(draft) == [(0,), (1,), (0, 1), (1, 1)]


def test_topk_above_the_vocabulary_takes_the_whole_vocabulary():
    draft = beams(TreeShape(steps=1, topk=8, nodes=9), lambda path: [0.5, 0.25, 0.25])
    assert sorted(draft.tokens) == [0, 1, 2]


def test_a_tree_is_cut_to_the_depth_that_the_limits_leave():
    shape = TreeShape(steps=3, topk=2, nodes=6)
    assert paths(beams(shape, lambda path: S3_K2_D6[path], 1)) == [(0,), (1,)]
    assert beams(shape, lambda path: S3_K2_D6[path], 0) == Draft()


def test_beams_score_with_the_earlier_candidates_of_their_own_path_in_the_prefix():
    watched = Untouched()
    grow(BeamGrower(TreeShape(steps=2, topk=2, nodes=4), 9, watched, [5, 6]), lambda path: [0.5, 0.375, 0.125])  # type: ignore[arg-type]
    assert watched.prefixes == [[5, 6], [5, 6, 0], [5, 6, 1]]


# -- the sampled chain ----------------------------------------------------------------------------------------------


def chain(gamma: int, rows: Rows, draws: Sequence[float], prefix: Sequence[int] = (7,)) -> Draft:
    return grow(ChainGrower(gamma, Untouched(), prefix, scripted(draft=draws).draft), rows)  # type: ignore[arg-type]


def test_a_chain_draws_each_candidate_from_q_given_all_before_it():
    table = {(): [0.5, 0.3, 0.2], (1,): [0.1, 0.1, 0.8], (1, 2): [0.0, 1.0, 0.0]}
    draft = chain(3, lambda path: table[path], [0.6, 0.9, 0.0])
    assert draft.tokens == (1, 2, 1)
    assert draft.parents == (ROOT, 0, 1)
    assert draft.drawing == "with_replacement"
    assert [q.vector(3, CPU).tolist() for q in draft.q] == [table[()], table[(1,)], table[(1, 2)]]
    assert draft.score == (0.3, 0.8, 1.0)


def test_a_chain_draws_with_the_candidates_before_each_in_its_prefix():
    watched = Untouched()
    chained = ChainGrower(3, watched, [5, 6], scripted(draft=[0.6, 0.9, 0.0]).draft)  # type: ignore[arg-type]
    grow(chained, lambda path: [0.5, 0.3, 0.2])
    assert watched.prefixes == [[5, 6], [5, 6, 1], [5, 6, 1, 2]]


def test_the_q_of_a_candidate_is_the_very_tensor_that_it_was_drawn_from():
    q = torch.tensor([0.5, 0.5])
    distributions = Untouched()
    distributions.draft = lambda scores: q
    one = ChainGrower(1, distributions, [7], scripted(draft=[0.9]).draft)  # type: ignore[arg-type]
    one.grow([torch.zeros(2)])
    draft, _ = one.finish()
    assert draft.q == (Law(q),)
    assert draft.proposal(0, 2, CPU) is q


def test_a_chain_of_no_depth_draws_nothing():
    assert chain(0, lambda path: [1.0], []).tokens == ()
    shapeless = grower(NoShape(), 5, Untouched(), [7], scripted().draft)  # type: ignore[arg-type]
    assert shapeless.frontier() == []


@pytest.mark.parametrize("shape", [ChainShape(gamma=4), TreeShape(steps=4, topk=2, nodes=8)])
def test_every_shape_is_cut_to_the_depth_that_the_limits_leave(shape: ShapeSpec):
    one = grower(shape, 2, Untouched(), [7], scripted(draft=[0.0] * 4).draft)  # type: ignore[arg-type]
    draft = grow(one, lambda path: [0.5, 0.375, 0.125])
    assert max(draft.depth(node) for node in range(len(draft.tokens))) == 2


def test_trees_grow_by_untempered_scores_and_chains_by_tempered_q_but_both_report_the_drafters_own_probability():
    logits = torch.tensor([1.0, 2.0, 0.0])
    distributions = Distributions.of(Sampling(temperature=0.5, top_k=1), frozenset(), 1, CPU)
    tree = BeamGrower(TreeShape(steps=1, topk=2, nodes=3), 9, distributions, [0])
    tree.grow([logits])
    assert tree.finish()[0].tokens == (1, 0)
    assert tree.finish()[0].score == pytest.approx(logits.softmax(0)[[1, 0]].tolist())
    drawn = ChainGrower(1, distributions, [0], scripted(draft=[0.99]).draft)
    drawn.grow([logits])
    chained, _ = drawn.finish()
    assert chained.proposal(0, 3, CPU).tolist() == [0.0, 1.0, 0.0]
    assert chained.score == pytest.approx(logits.softmax(0)[[1]].tolist())


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shape", ["chain:1", "s1_k1_d2"])
def test_the_score_of_a_candidate_is_the_drafts_own_probability_at_any_temperature(shape, temperature):
    """Greedy, a chain drafts what a tree of one beam drafts, and reports the same: .6 of (.6, .1, .3)."""
    pair: Any = fake_pair(always(0.0, 0.0, 1.0), always(0.6, 0.1, 0.3))
    run = decode(ask("ab", "model", shape, temperature=temperature, max_new_tokens=12, seed=1), pair)
    own = {0: pytest.approx(0.6), 1: pytest.approx(0.1), 2: pytest.approx(0.3)}
    nodes = [node for one in run.rounds for node in one.nodes]
    assert len({node.token for node in nodes}) > (temperature > 0.0 and shape == "chain:1")
    for node in nodes:
        assert node.score == own[node.token]


# -- faults and the draft itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_draft_logits_end_the_draft_with_a_sentence_naming_the_node(bad):
    stream = scripted(draft=[0.0] * 3).draft
    one = ChainGrower(3, Untouched(), [7], stream)  # type: ignore[arg-type]
    one.grow([torch.tensor([1.0, 0.0])])
    one.grow([torch.tensor([1.0, bad])])
    one.grow([torch.tensor([bad, 1.0])])
    draft, created = one.finish()
    sentence = "the draft's logits after node 0 are NaN or infinite: try float32, or other weights"
    assert draft.fault == sentence
    assert (draft.tokens, draft.score, len(draft.q), created) == ((0,), (1.0,), 1, [0])
    tree = BeamGrower(TreeShape(steps=2, topk=1, nodes=3), 9, Untouched(), [7])  # type: ignore[arg-type]
    tree.grow([torch.tensor([bad, 0.0])])
    assert tree.frontier() == []
    assert tree.finish()[0].fault == sentence.replace("node 0", "the root")


def test_an_id_that_cannot_be_emitted_is_no_fault():
    assert logits_fault(torch.tensor([0.0, -math.inf]), "draft", ROOT) is None


def test_a_draft_knows_children_paths_and_depths():
    draft = Draft.chosen(tokens=(4, 5, 6, 7), parents=(ROOT, ROOT, 1, 2))
    assert [draft.children(node) for node in (ROOT, 0, 1, 2, 3)] == [[0, 1], [], [2], [3], []]
    assert draft.path(3) == [1, 2, 3]
    assert draft.path(ROOT) == []
    assert [draft.depth(node) for node in (ROOT, 0, 1, 2, 3)] == [0, 1, 1, 2, 3]
    assert draft.proposal(2, 8, CPU).tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


@given(shapes(), st.integers(0, 100))
def test_scratch_holds_what_drafting_and_verifying_a_tree_can_take(shape, seed):
    """Drafter: what the last round left to feed (at most depth + 1) and every beam; target: root and nodes."""
    one = BeamGrower(shape, 64, Untouched(), [7])  # type: ignore[arg-type]
    computed = 0
    table = hashed(6, seed)
    while nodes := one.frontier():
        computed += len([node for node in nodes if node != ROOT])
        one.grow([torch.tensor(table((node,)), dtype=torch.float64) for node in nodes])
    assert scratch_rows(shape) >= shape.depth + 1 + computed
    assert scratch_rows(shape) >= 1 + len(one.finish()[0].tokens)
