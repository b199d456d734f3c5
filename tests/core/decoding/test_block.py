"""Block verification: its law is the target's, exactly, and it accepts more than token verification (rules.md §2)."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
import torch

from core.decoding.block import block_of, toss
from core.decoding.distortion import measure
from core.decoding.verify import walk
from core.drafting.draft import Draft
from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import ROOT
from core.rules.table import token_rule
from core.types import Request, Sampling, Stops
from tests.helpers.decoding import ask, decode
from tests.helpers.explore import emitted_law, reference_law
from tests.helpers.fakes import always, fake_pair, hashed, scripted

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64)
BLOCK = token_rule(parse_rule("block"))


def chain(*tokens: int, q: torch.Tensor = Q) -> Draft:
    size = len(tokens)
    return Draft.drawn(tokens, range(ROOT, size - 1), (q,) * size)


def expected_lengths(gamma: int) -> tuple[float, float]:
    """Mean accepted length of block and token verification when p and q are the same after every prefix."""
    block = token = 0.0
    for tokens in itertools.product(range(3), repeat=gamma):
        weight = float(torch.prod(Q[list(tokens)]))
        accept = block_of(chain(*tokens), lambda node: P).accept
        for length in range(1, gamma + 1):
            later = 1.0
            for h in accept[length:]:
                later *= 1.0 - h
            block += weight * length * accept[length - 1] * later
        passed = 1.0
        for x in tokens:
            passed *= min(1.0, float(P[x] / Q[x]))
            token += weight * passed
    return block, token


@pytest.mark.parametrize(("gamma", "block", "token"), [(1, 0.8, 0.8), (2, 1.46, 1.44), (3, 2.022, 1.952)])
def test_the_seed_pair_accepts_as_many_tokens_as_the_specification_says(gamma, block, token):
    assert expected_lengths(gamma) == pytest.approx((block, token), abs=1e-9)


@pytest.mark.parametrize("shape", ["chain:1", "chain:2", "chain:3"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_p=0.8), Sampling(min_p=0.5)])
def test_blocks_emit_exactly_the_reference_law(shape, sampling, monkeypatch):
    pair = fake_pair(hashed(3, seed=11), hashed(3, seed=22), eos=[2])
    request = Request(
        prompt="ab",
        sampling=sampling,
        stops=Stops(max_new_tokens=2 if shape == "chain:1" else 3),
        drafter=parse_drafter("model"),
        shape=parse_shape(shape),
        rule=parse_rule("block"),
    )
    assert emitted_law(request, pair, monkeypatch) == pytest.approx(reference_law(request, pair), abs=1e-5)


def test_deterministic_chains_emit_exactly_the_reference_law(monkeypatch):
    pair = fake_pair(hashed(3, seed=11), hashed(3, seed=22), eos=[2])
    for drafter, shape in (("prompt_lookup", "chain:2"), ("model", "s2_k1_d3")):
        request = Request(
            prompt="abab",
            stops=Stops(max_new_tokens=3),
            drafter=parse_drafter(drafter),
            shape=parse_shape(shape),
            rule=parse_rule("block"),
        )
        assert emitted_law(request, pair, monkeypatch) == pytest.approx(reference_law(request, pair), abs=1e-5)


def test_a_later_candidate_that_passes_takes_the_earlier_ones_along():
    """h = (…, …): the first coin fails its own test, the second passes, so both are accepted."""
    block = block_of(chain(0, 1), lambda node: P)
    assert block.weights == pytest.approx((1.0, 5 / 6, 1.0))
    left = 5 / 6 * 0.3 - 0.1
    assert block.accept == pytest.approx((left / (left + 1 / 6), 1.0))
    coins = iter((0.99, 0.5))
    length, trials = toss(block, chain(0, 1), coins.__next__)
    assert length == 2
    assert [(trial.accepted, trial.u < trial.accept_prob) for trial in trials] == [(True, False), (True, True)]


def test_fates_are_accepted_up_to_the_last_pass_then_one_rejection_and_the_rest_unreached():
    pair = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
    run = decode(
        ask(drafter="model", shape="chain:4", rule="block", temperature=1.0, max_new_tokens=5),
        pair,
        streams=lambda _: scripted(draft=[0.1] * 4, coin=[0.0, 0.9999, 0.9999, 0.9999] + [0.9] * 9, redraw=[0.2] * 9),
        should_stop=iter([False, True, True]).__next__,
    )
    nodes = run.rounds[0].nodes
    assert [node.fate for node in nodes] == ["accepted", "rejected", "unreached", "unreached"]
    expected = block_of(chain(0, 0, 0, 0), lambda node: P).accept
    assert [node.accept_prob for node in nodes] == pytest.approx(expected, abs=1e-6)
    assert [node.u for node in nodes] == [0.0, 0.9999, 0.9999, 0.9999]
    assert run.rounds[0].source == "correction"
    assert run.rounds[0].committed == (0, 1)  # norm (w·p − q)₊ holds token 1 alone


def test_a_whole_accepted_block_draws_its_bonus_from_the_target():
    verdict = walk(chain(1, 1), lambda node: P, BLOCK, scripted(coin=[0.5, 0.5], redraw=[0.75]))
    assert (verdict.path, verdict.source, verdict.next_token) == ((0, 1), "bonus", 1)


def test_equal_distributions_accept_every_block_although_nothing_is_left_to_redraw():
    block = block_of(chain(0, 1, 2, q=P), lambda node: P)
    assert block.accept == (1.0, 1.0, 1.0)
    assert block.residual(0).tolist() == P.tolist()


def test_a_token_that_the_target_never_emits_ends_the_block_before_it():
    p = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    block = block_of(chain(0, 1, 0), lambda node: p)
    assert block.accept[1:] == (0.0, 0.0)
    verdict = walk(chain(0, 1, 0), lambda node: p, BLOCK, scripted(coin=[0.0, 0.0, 0.0], redraw=[0.5]))
    assert verdict.path == (0,)


def test_a_draft_that_branches_is_no_block():
    with pytest.raises(ValueError, match="this draft branches"):
        block_of(Draft.chosen((0, 1), (ROOT, ROOT)), lambda node: P)


def test_an_empty_draft_decodes_plainly():
    verdict = walk(Draft(), lambda node: P, BLOCK, scripted(redraw=[0.99]))
    assert (verdict.path, verdict.source, verdict.next_token) == ((), "bonus", 2)


def test_a_position_of_a_block_has_a_residual_but_no_law_of_its_own():
    draft = chain(0, 0)
    visited = {ROOT: P, 0: P}
    verdict = walk(draft, visited.__getitem__, BLOCK, scripted(coin=[0.9999, 0.9999], redraw=[0.5]))
    found = measure(draft, verdict, visited, BLOCK)
    assert [(one.law, one.distortion) for one in found.values()] == [(None, None)] * 2
    assert found[ROOT].residual.tolist() == pytest.approx([0, 1, 0])
    assert found[0].residual.tolist() == pytest.approx([0, 1, 0])  # w₁ = 5/6: (5/6·p − q)₊ holds token 1 alone


def test_block_lengths_of_the_walk_are_those_of_its_own_probabilities():
    """Every coin vector of a grid, walked: the shares of accepted lengths approach Π over hᵢ."""
    draft = chain(0, 2)
    accept = block_of(draft, lambda node: P).accept
    grid = [(i + 0.5) / 20 for i in range(20)]
    counts: dict[int, int] = defaultdict(int)
    for coins in itertools.product(grid, repeat=2):
        counts[len(walk(draft, lambda node: P, BLOCK, scripted(coin=coins, redraw=[0.5])).path)] += 1
    assert counts[2] / 400 == pytest.approx(accept[1], abs=0.05)
    assert counts[1] / 400 == pytest.approx((1 - accept[1]) * accept[0], abs=0.05)
