"""Prompt lookup copies what followed earlier occurrences: longest n-gram first, latest occurrence first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.decoding.engine import generate
from core.drafting.base import DraftRequest
from core.drafting.draft import Draft
from core.drafting.prompt_lookup import NgramIndex, PromptLookup, trie
from core.grammar import parse_shape
from core.records import ROOT, Round
from core.sampling.distributions import Distributions
from core.sampling.probability import Certain
from core.types import ChainShape, PromptLookupDrafter, Request, Sampling, Stops, TreeShape
from tests.helpers.fakes import LETTERS, fake_pair, scripted

DISTRIBUTIONS = Distributions.of(Sampling(), frozenset(), 0, torch.device("cpu"))


def look_up(prefix: str, shape: str = "chain:4", low: int = 1, high: int = 3, depth: int = 99) -> Draft:
    """The draft after a prefix of letters."""
    want = DraftRequest(
        slot=0,
        prefix=[LETTERS.index(letter) for letter in prefix],
        shape=parse_shape(shape),
        depth=depth,
        distributions=DISTRIBUTIONS,
        stream=scripted().draft,
    )
    (draft,) = PromptLookup(PromptLookupDrafter(min_ngram=low, max_ngram=high)).propose([want])
    return draft


def text(tokens: Sequence[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def paths(draft: Draft) -> list[str]:
    return [text([draft.tokens[i] for i in draft.path(node)]) for node in range(len(draft.tokens))]


@pytest.mark.parametrize(
    ("prefix", "shape", "drafted"),
    [
        ("abcdeabc", "chain:4", "deab"),
        ("abcdeabc", "chain:1", "d"),
        ("abcdeabc", "chain:9", "deabc"),
        ("abcxabcyabc".replace("x", "d").replace("y", "e"), "chain:2", "ea"),
        ("abcdebcfdbc", "chain:1", "f"),
        ("abcdpbcfabc", "chain:1", "d"),
        ("abcd", "chain:4", ""),
        ("aaa", "chain:4", "a"),
        ("aaaa", "chain:4", "a"),
        ("a", "chain:4", ""),
        ("", "chain:4", ""),
    ],
    ids=[
        "the continuation is copied up to gamma tokens",
        "gamma 1 copies one token",
        "a continuation may run into the current n-gram and ends with the prefix",
        "the latest occurrence wins",
        "among occurrences of equal n-grams the latest wins",
        "a longer n-gram wins over a later shorter one",
        "nothing repeats: nothing is drafted",
        "a repeated token: longest n-gram that has a continuation",
        "a run of one token",
        "one token has nothing before it",
        "an empty prefix",
    ],
)
def test_a_chain_copies_what_followed(prefix, shape, drafted):
    draft = look_up(prefix, shape)
    assert text(draft.tokens) == drafted
    assert draft.parents == tuple(range(-1, len(drafted) - 1))


def test_ngrams_shorter_than_the_minimum_do_not_match():
    assert text(look_up("abcdpbcfabc", low=3).tokens) == "dpbc"
    assert look_up("axbx".replace("x", "c"), low=2).tokens == ()
    assert text(look_up("axbx".replace("x", "c"), low=1).tokens) == "bc"


def test_ngrams_longer_than_the_maximum_are_not_looked_for():
    assert text(look_up("abcdpbcfabc", "chain:1", high=2).tokens) == "f"


def test_candidates_are_deterministic_without_a_score_of_their_own():
    draft = look_up("abcdeabc")
    assert draft.drawing == "deterministic"
    assert draft.q == tuple(Certain(token) for token in draft.tokens)
    assert draft.score == (None,) * 4


def test_a_draft_shrinks_to_the_depth_that_the_limits_leave():
    assert text(look_up("abcdeabc", depth=2).tokens) == "de"
    assert look_up("abcdeabc", depth=0) == Draft()


def test_a_tree_merges_different_continuations_into_a_trie():
    """After "ab": cd (latest), ce, f. They share c; the fourth occurrence, cd again, brings nothing new."""
    draft = look_up("abfpabcepabcdpabcdpab", "s2_k3_d7", low=2, high=2)
    assert paths(draft) == ["c", "f", "cd", "ce", "fp"]
    assert draft.parents == (ROOT, ROOT, 0, 0, 1)


def test_a_tree_keeps_the_shallower_nodes_when_they_do_not_all_fit():
    draft = look_up("abfpabcepabcdpabcdpab", "s2_k3_d5", low=2, high=2)
    assert paths(draft) == ["c", "f", "cd", "ce"]


def test_a_tree_of_one_beam_is_the_chain():
    assert look_up("abcdeabc", "s4_k1_d5") == look_up("abcdeabc", "chain:4")


def test_a_trie_has_no_node_twice_and_parents_first():
    assert trie([(1, 2, 3), (1, 2), (1, 4)], 9) == Draft.chosen((1, 2, 4, 3), (ROOT, 0, 0, 1))
    assert trie([], 9) == Draft()


def slow(prefix: list[int], low: int, high: int, gamma: int) -> list[int]:
    """Longest n-gram first, latest occurrence first, at least one token after it."""
    for size in range(high, low - 1, -1):
        for start in range(len(prefix) - size - 1, -1, -1):
            if size < len(prefix) and prefix[start : start + size] == prefix[-size:]:
                return prefix[start + size : start + size + gamma]
    return []


@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.tuples(st.integers(1, 5), st.integers(1, 5)).map(sorted),
    st.integers(1, 6),
)
def test_chains_agree_with_a_slow_search(prefix, ends, gamma):
    low, high = ends
    draft = look_up(text(prefix), f"chain:{gamma}", low, high)
    assert list(draft.tokens) == slow(prefix, low, high, gamma)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.sampled_from(["s3_k2_d6", "s4_k4_d9", "s2_k3_d7"]))
def test_every_branch_of_a_tree_is_a_continuation_that_really_followed(prefix, shape):
    draft = look_up(text(prefix), shape)
    spec = parse_shape(shape)
    found = paths(draft)
    assert len(set(found)) == len(found) <= spec.drafted
    assert all(len(path) <= spec.depth for path in found)
    assert [path for path in found if text(prefix)[-1] + path not in text(prefix)] == []
    if found:
        assert found[0] == text(slow(list(prefix), 1, 3, 1))


def scan(prefix: Sequence[int], low: int, high: int, depth: int, breadth: int, nodes: int) -> Draft:
    """The draft by reading the whole prefix again."""
    found: list[tuple[int, ...]] = []
    for size in range(min(high, len(prefix) - 1), low - 1, -1):
        for end in range(len(prefix) - 2, size - 2, -1):
            if list(prefix[end - size + 1 : end + 1]) == list(prefix[-size:]):
                one = tuple(prefix[end + 1 : end + 1 + depth])
                if len(found) < breadth and not any(known[: len(one)] == one for known in found):
                    found.append(one)
    return trie(found, nodes)


def grown(slot: int, prefix: Sequence[int], shape: str, depth: int) -> DraftRequest:
    return DraftRequest(slot, prefix, parse_shape(shape), depth, DISTRIBUTIONS, scripted().draft)


@given(st.data(), st.sampled_from(["chain:1", "chain:4", "s3_k2_d6", "s4_k4_d9", "s2_k3_d7"]))
def test_a_growing_sequence_is_drafted_for_as_by_reading_it_all_again(data, shape):
    """Two slots that grow by turns and are closed and opened again, the draft's depth shrinking now and then."""
    low, high = sorted(data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5))))
    spec = parse_shape(shape)
    lookup = PromptLookup(PromptLookupDrafter(min_ngram=low, max_ngram=high))
    prefixes: dict[int, list[int]] = {0: [], 1: []}
    tokens = st.lists(st.integers(0, data.draw(st.integers(0, 3))), max_size=12)
    for _ in range(data.draw(st.integers(1, 12))):
        slot = data.draw(st.integers(0, 1))
        if data.draw(st.sampled_from([False, False, False, True])):
            lookup.close(slot)
            prefixes[slot] = data.draw(tokens)
            lookup.open(slot, prefixes[slot][:-1])
        prefixes[slot] += data.draw(tokens)
        depth = data.draw(st.integers(0, 6))
        (draft,) = lookup.propose([grown(slot, prefixes[slot], shape, depth)])
        breadth = spec.topk if isinstance(spec, TreeShape) else 1
        shrunk = min(depth, spec.depth)
        wanted = scan(prefixes[slot], low, high, shrunk, breadth, spec.drafted) if shrunk else Draft()
        assert draft == wanted


def test_a_round_reads_the_new_tokens_and_the_same_number_of_continuations_at_any_length(monkeypatch):
    """Every token of the text is the same, so every earlier place matches."""
    read: list[int] = []

    class Counted(list[int]):
        def __getitem__(self, place: Any) -> Any:
            read.append(len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1)
            return super().__getitem__(place)

    def continuations(self, depth):
        for one in original(self, depth):
            read.append(len(one))
            yield one

    original = NgramIndex.continuations
    monkeypatch.setattr(NgramIndex, "continuations", continuations)
    lookup = PromptLookup(PromptLookupDrafter())
    prefix = Counted([0] * 50)
    costs = []
    for _ in range(100):
        prefix += [0, 0]
        read.clear()
        lookup.propose([grown(0, prefix, "s3_k2_d6", 99)])
        costs.append(sum(read))
    assert costs[0] > costs[1]
    assert set(costs[1:]) == {costs[1]}


def test_a_copied_text_is_accepted_whole_by_a_greedy_target_that_repeats_it():
    """The target goes round abcde; the prompt holds one round, so every later draft is right."""
    pair = fake_pair(
        lambda prefix: [float(token == (prefix[-1] + 1) % 5) for token in range(5)], vocabulary=LETTERS[:5]
    )
    request = Request(
        prompt="abcdea",
        sampling=Sampling(temperature=0.0),
        stops=Stops(max_new_tokens=10),
        drafter=PromptLookupDrafter(),
        shape=ChainShape(gamma=4),
    )
    rounds = [event for event in generate([request], pair) if isinstance(event, Round)]  # type: ignore[arg-type]
    assert [(one.drafted, one.accepted, text(one.committed)) for one in rounds] == [(4, 4, "bcdea"), (4, 4, "bcdea")]
