"""What is read of a pass's logits: at once for all requests, and without a row of the vocabulary where one token will
do. Each short way against the long one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.decoding.distortion import Measurement
from core.decoding.position_table import TOP_TOKENS, position_table
from core.decoding.target_rows import Peaks, TargetRows, peaks
from core.decoding.verify import walk, walk_certain
from core.drafting.draft import Draft
from core.errors import EngineFault
from core.records import ROOT
from core.rules.table import token_rule
from core.rules.token_rule import LosslessRule
from core.sampling.distributions import Distributions
from core.sampling.probability import Certain, Law, one_hot
from core.sampling.randomness import Streams
from core.types import AllowedSet, Block, Lenience, Lossless, RuleSpec, Sampling

CPU = torch.device("cpu")


def distributions(**sampling: Any) -> Distributions:
    return Distributions.of(Sampling(**sampling), frozenset(), 3, CPU)


# -- peaks ----------------------------------------------------------------------------------------------------------


def test_peaks_of_ragged_requests_are_each_rows_largest_value_and_its_first_token():
    short, long = torch.tensor([[0.0, 2.0, 2.0]]), torch.tensor([[5.0, 1.0, 5.0], [-math.inf, -math.inf, -3.0]])
    assert peaks([short, long]) == [Peaks([2.0], [1]), Peaks([5.0, -3.0], [0, 2])]


@pytest.mark.parametrize("seed", range(5))
def test_a_peak_among_many_equal_ones_is_the_token_that_argmax_takes(seed):
    rows = torch.randint(0, 4, (3, 50_000), generator=torch.Generator().manual_seed(seed)).float()
    assert peaks([rows])[0].tokens == rows.argmax(dim=-1).tolist()


class Late:
    """A deferred row that counts how often it was computed."""

    def __init__(self, *logits: float) -> None:
        self.logits = logits
        self.computed = 0

    def compute(self) -> Tensor:
        self.computed += 1
        return torch.tensor([self.logits])


def rows_of(logits: Tensor, deferred: Late | None = None) -> TargetRows:
    """Of a greedy request that drafted one candidate, token 1."""
    draft = Draft.chosen((1,), (ROOT,))
    return TargetRows(draft, logits, peaks([logits])[0], distributions(temperature=0.0), [0], 7, deferred)


def test_a_deferred_row_is_computed_when_a_walk_gets_there_and_once():
    rows = rows_of(torch.tensor([[0.0, 1.0]]), late := Late(4.0, 3.0))
    assert rows.law(ROOT) == Certain(1)
    assert late.computed == 0
    assert rows.law(0) == Certain(0)
    assert rows.vector(0).tolist() == [1.0, 0.0]
    assert late.computed == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_deferred_row_that_is_broken_is_a_fault_too(value):
    rows = rows_of(torch.tensor([[0.0, 1.0]]), Late(value, 3.0))
    with pytest.raises(EngineFault, match="round 8: the target's logits after node 0 are NaN or infinite"):
        rows.law(0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_row_is_a_fault_only_where_a_walk_reads_it(value):
    rows = rows_of(torch.tensor([[0.0, 1.0], [0.0, value]]))
    assert rows.law(ROOT) == Certain(1)
    with pytest.raises(EngineFault, match="round 8: the target's logits after node 0 are NaN or infinite"):
        rows.law(0)


# -- what a position costs ------------------------------------------------------------------------------------------


class Unread(Sequence[int]):
    """A long prefix that must not be read."""

    def __len__(self) -> int:
        raise AssertionError("the prefix was read")

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("the prefix was read")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_without_penalties_a_position_does_not_look_at_what_came_before(temperature):
    logits = torch.tensor([[0.0, 1.0, 0.5]])
    rows = TargetRows(Draft(), logits, peaks([logits])[0], distributions(temperature=temperature), Unread(), 0)
    assert float(rows.vector(ROOT).sum()) == pytest.approx(1.0)
    assert float(rows.untempered(ROOT).sum()) == pytest.approx(1.0)


SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 9},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.05, "epsilon": 0.001, "eta": 0.002},
    {"temperature": 1.0, "allowed": (AllowedSet(eta=0.2), AllowedSet(min_p=0.1))},
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=[" ".join(one) for one in SAMPLINGS])
def test_distributions_formed_together_are_those_formed_alone_to_the_last_bit(sampling):
    logits = torch.randn(5, 3000, generator=torch.Generator().manual_seed(0)) * 4
    own = distributions(**sampling)
    together = own.targets(logits)
    for row, p in zip(logits, together, strict=True):
        assert torch.equal(p, own.target(row, [0]))


# -- greedy positions -----------------------------------------------------------------------------------------------


@st.composite
def drafts(draw: Any, vocab: int) -> Draft:
    """A deterministic tree without equal siblings, or a chain of certain draws."""
    if draw(st.booleans()):
        tokens = draw(st.lists(st.integers(0, vocab - 1), max_size=4))
        q = tuple(one_hot(token, vocab) for token in tokens)
        return Draft.drawn(tokens, range(-1, len(tokens) - 1), q, (1.0,) * len(tokens))
    pairs: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 7))):
        pair = (draw(st.integers(ROOT, len(pairs) - 1)), draw(st.integers(0, vocab - 1)))
        if pair not in pairs:
            pairs.append(pair)
    return Draft.chosen(tuple(t for _, t in pairs), tuple(p for p, _ in pairs))


@settings(deadline=None)
@given(data=st.data(), rule=st.sampled_from([Lossless(), Lenience(ell=0.4), Lenience(ell=0.9), Block()]))
def test_a_walk_over_certain_tokens_is_the_walk_over_their_rows(data: Any, rule: RuleSpec):
    vocab = 5
    draft = data.draw(drafts(vocab))
    if isinstance(rule, Block) and draft.parents != tuple(range(-1, len(draft.tokens) - 1)):
        rule = Lossless()
    choices = data.draw(st.lists(st.integers(0, vocab - 1), min_size=8, max_size=8))
    seed = data.draw(st.integers(0, 99))
    made = token_rule(rule)
    assert isinstance(made, LosslessRule)
    asked: dict[str, list[int]] = {"short": [], "long": []}

    def law(node: int) -> Certain:
        asked["short"].append(node)
        return Certain(choices[node])

    def target(node: int) -> torch.Tensor:
        asked["long"].append(node)
        return one_hot(choices[node], vocab)

    short = walk_certain(draft, law, made, Streams.seeded(seed))
    assert short == walk(draft, target, made, Streams.seeded(seed))
    assert list(dict.fromkeys(asked["short"])) == list(dict.fromkeys(asked["long"]))


@settings(deadline=None, max_examples=60)
@given(
    data=st.data(),
    vocab=st.sampled_from([4, 30, 1279, 1280, 1281, 1400]),
    measured=st.booleans(),
)
def test_a_greedy_positions_table_is_the_table_of_its_rows(data: Any, vocab: int, measured: bool):
    draft = data.draw(drafts(vocab))
    choice = data.draw(st.integers(0, vocab - 1))
    noise = torch.rand(2, vocab, generator=torch.Generator().manual_seed(1))
    measurement = Measurement(noise[0], noise[1], None) if measured else None
    for node in range(ROOT, len(draft.tokens)):
        wanted = position_table(draft, node, Law(one_hot(choice, vocab)), measurement, str)
        found = position_table(draft, node, Certain(choice), measurement, str)
        assert sorted(found.top, key=lambda one: one.token) == sorted(wanted.top, key=lambda one: one.token)
        assert replace(found, top=()) == replace(wanted, top=())


def test_a_greedy_table_with_more_candidates_than_fit_keeps_the_targets_choice_and_counts_the_rest():
    tokens = tuple(range(100, 1300, 40))
    draft = Draft.chosen(tokens, (ROOT,) * len(tokens))
    for choice in (3, 100, 2000):
        found = position_table(draft, ROOT, Certain(choice), None, str)
        assert [one.token for one in found.top if one.p] == [choice]
        assert len(found.top) == TOP_TOKENS
        assert (found.p_rest, found.q_rest) == (0.0, len(tokens) - sum(one.q or 0.0 for one in found.top))
