"""Losslessness, tested exactly: every drafter, sibling kind and sampling transform emits the reference law.

All outputs of two or three tokens over a vocabulary of three are enumerated with their probabilities through the
engine itself (:mod:`tests.helpers.explore`), and compared with the product of processed target distributions.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from core.drafting.draft import Draft
from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import ROOT
from core.rules.table import induced, token_rule
from core.types import Request, Sampling, Stops
from tests.helpers.explore import Branching, emitted_law, first_token_law, reference_law
from tests.helpers.fakes import FakePair, always, fake_pair, hashed

TARGET = hashed(3, seed=11)
DRAFT = hashed(3, seed=22)

SAMPLINGS = {
    "plain softmax": Sampling(),
    "temperature": Sampling(temperature=0.6),
    "top-k": Sampling(top_k=2),
    "top-p": Sampling(top_p=0.7),
    "min-p": Sampling(min_p=0.5),
    "η": Sampling(eta=0.3),
    "ε": Sampling(epsilon=0.25),
    "min-p on both": Sampling(min_p=0.5, truncate_draft=True),
    "repetition penalty": Sampling(repetition_penalty=1.7),
    "min new tokens": Sampling(min_new_tokens=2),
    "greedy": Sampling(temperature=0.0),
    "everything": Sampling(temperature=0.8, top_k=2, top_p=0.9, min_p=0.1, repetition_penalty=1.3, min_new_tokens=1),
}

DRAFTS = [
    ("model", "chain:1"),
    ("model", "chain:2"),
    ("model", "s2_k2_d5"),
    ("model", "s1_k3_d4"),
    ("prompt_lookup", "chain:2"),
    ("prompt_lookup:1,2", "s2_k2_d4"),
    ("early_exit:1", "chain:2"),
    ("early_exit:1", "s2_k2_d4"),
]


def table_pair() -> FakePair:
    return fake_pair(TARGET, DRAFT, eos=[2])


def transformer_pair() -> FakePair:
    """A real two-layer network over three tokens: early exit shares its cache rows and activations."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=3,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=1.0,
    )
    pair = table_pair()
    pair.target.network = LlamaForCausalLM(config).eval()
    return pair


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("drafter", "shape"), DRAFTS)
def test_lossless_decoding_emits_exactly_the_reference_law(drafter, shape, sampling, monkeypatch):
    pair = transformer_pair() if drafter.startswith("early_exit") else table_pair()
    request = Request(
        prompt="abab",
        sampling=sampling,
        stops=Stops(max_new_tokens=2 if shape in ("s2_k2_d5",) else 3),
        drafter=parse_drafter(drafter),
        shape=parse_shape(shape),
    )
    law = emitted_law(request, pair, monkeypatch)
    assert law == pytest.approx(reference_law(request, pair), abs=1e-5)


@pytest.mark.parametrize(
    "rule", ["lenience:0.5", "spec_cascade:0.6,redraw=target", "spec_cascade:0.6,redraw=draft_in_set"]
)
def test_a_lossy_chain_emits_exactly_the_induced_law_of_its_rule(rule, monkeypatch):
    pair = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
    request = Request(
        prompt="a",
        stops=Stops(max_new_tokens=2),
        drafter=parse_drafter("model"),
        shape=parse_shape("chain:1"),
        rule=parse_rule(rule),
    )
    law = emitted_law(request, pair, monkeypatch)
    first = [sum(weight for tokens, weight in law.items() if tokens[0] == x) for x in range(3)]
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])
    assert first == pytest.approx(induced(token_rule(parse_rule(rule)), p, q).tolist(), abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("drawing", ["with_replacement", "without_replacement"])
def test_sampled_siblings_are_lossless(count, drawing, monkeypatch):
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])

    def draft_of(one: Branching) -> Draft:
        tokens: list[int] = []
        left = q
        for _ in range(count):
            tokens.append(one.draw(left, 0.5))
            if drawing == "without_replacement":
                left = left.clone()
                left[tokens[-1]] = 0.0
                left = left / left.sum() if float(left.sum()) > 0 else left
        return Draft.siblings(tokens, q, drawing)

    assert first_token_law(draft_of, p, "lossless", monkeypatch) == pytest.approx(p.tolist(), abs=1e-6)


@pytest.mark.parametrize("tokens", [t for n in (1, 2, 3) for t in itertools.permutations(range(3), n)])
def test_deterministic_siblings_are_lossless(tokens, monkeypatch):
    p = torch.tensor([0.5, 0.3, 0.2])
    law = first_token_law(lambda one: Draft.chosen(tokens, (ROOT,) * len(tokens)), p, "lossless", monkeypatch)
    assert law == pytest.approx(p.tolist(), abs=1e-6)


def test_deterministic_siblings_under_spec_cascade_take_the_first_in_the_allowed_set(monkeypatch):
    p = torch.tensor([0.5, 0.3, 0.2])
    draft = Draft.chosen((2, 1, 0), (ROOT,) * 3)
    assert first_token_law(lambda one: draft, p, "spec_cascade:0.5,redraw=target", monkeypatch) == pytest.approx(
        [0, 1, 0]
    )


@pytest.mark.parametrize(
    ("redraw", "law"),
    [("target", (0.625, 0.375, 0.0)), ("target_in_set", (0.625, 0.375, 0.0)), ("draft_in_set", (0.625, 0.375, 0.0))],
)
def test_a_rejected_deterministic_candidate_is_zeroed_before_the_redraw(redraw, law, monkeypatch):
    p = torch.tensor([0.5, 0.3, 0.2])
    draft = Draft.chosen((2,), (ROOT,))
    emitted = first_token_law(lambda one: draft, p, f"spec_cascade:0.5,redraw={redraw}", monkeypatch)
    assert emitted == pytest.approx(law, abs=1e-6)


def test_a_deterministic_sibling_under_lenience_is_accepted_with_p_over_ell(monkeypatch):
    p = torch.tensor([0.5, 0.3, 0.2])
    draft = Draft.chosen((1,), (ROOT,))
    accepted = 0.3 / 0.5
    expected = [(1 - accepted) * 0.5 / 0.7, accepted, (1 - accepted) * 0.2 / 0.7]
    assert first_token_law(lambda one: draft, p, "lenience:0.5", monkeypatch) == pytest.approx(expected, abs=1e-6)


def test_recomputing_the_allowed_set_lets_a_later_sibling_in(monkeypatch):
    p = torch.tensor([0.05, 0.9, 0.03, 0.02])
    draft = Draft.chosen((3, 0), (ROOT,) * 2)
    once = first_token_law(lambda one: draft, p, "spec_cascade:0.5,redraw=target_in_set", monkeypatch)
    assert once == pytest.approx([0, 1, 0, 0])
    p = torch.tensor([0.3, 0.28, 0.22, 0.2])
    draft = Draft.chosen((2, 3), (ROOT,) * 2)
    strict = first_token_law(lambda one: draft, p, "spec_cascade:0.9,redraw=target_in_set,recompute=true", monkeypatch)
    assert strict == pytest.approx([0.3 / 0.58, 0.28 / 0.58, 0, 0], abs=1e-6)
