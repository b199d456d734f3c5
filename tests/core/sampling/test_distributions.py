"""Processed distributions against a numpy reference and against what ``transformers`` itself samples from."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaForCausalLM

from core.decoding.engine import generate
from core.records import Round
from core.sampling.distributions import Distributions
from core.sampling.probability import draw, one_hot
from core.sampling.randomness import Streams
from core.types import ChainShape, Request, Sampling, SmallModelDrafter, Stops, TreeShape
from tests.helpers.fakes import always, fake_pair, hashed, scripted
from tests.helpers.tiny import tiny_config

CPU = torch.device("cpu")
LOGITS = [2.0, 1.5, 0.5, 0.0, -1.0, -3.0]
PROMPT = 2
PREFIX = [0, 4, 4, 1]
EOS = frozenset({1, 3})


def made(eos: frozenset[int] = EOS, **fields: Any) -> Distributions:
    return Distributions.of(Sampling(**fields), eos, PROMPT, CPU)


def drafted(distributions: Distributions) -> Tensor:
    """q after :data:`PREFIX`."""
    return distributions.draft(distributions.penalised(torch.tensor(LOGITS), PREFIX))


def own(distributions: Distributions) -> Tensor:
    """The drafter's own probabilities after :data:`PREFIX`."""
    return distributions.growth(distributions.penalised(torch.tensor(LOGITS), PREFIX))


# -- a slow reference -----------------------------------------------------------------------------------------------


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def keep(scores: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Scores outside ``kept`` at −∞; the most probable token always stays."""
    return np.where(kept | (scores == scores.max()), scores, -np.inf)


def reference(sampling: Sampling, prefix: list[int], *, truncate: bool) -> np.ndarray:
    """The definitions, in the library's order: penalties, temperature, top-k, top-p, min-p, ε, η."""
    scores = np.array(LOGITS, dtype=np.float64)
    for token in set(prefix):
        penalty = sampling.repetition_penalty
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    if len(prefix) - PROMPT < sampling.min_new_tokens:
        scores[list(EOS)] = -np.inf
    if sampling.greedy:
        return np.eye(len(scores))[scores.argmax()]
    scores = scores / sampling.temperature
    if sampling.top_k:
        scores = keep(scores, scores >= np.sort(scores)[-min(sampling.top_k, len(scores))])
    if sampling.top_p < 1:
        p = softmax(scores)
        order = np.argsort(-p, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(p[order])[:-1]])
        kept = np.zeros(len(p), dtype=bool)
        kept[order[before < sampling.top_p]] = True
        scores = keep(scores, kept)
    if truncate and sampling.min_p:
        p = softmax(scores)
        scores = keep(scores, p >= sampling.min_p * p.max())
    if truncate and sampling.epsilon:
        scores = keep(scores, softmax(scores) >= sampling.epsilon)
    if truncate and sampling.eta:
        p = softmax(scores)
        entropy = -sum(x * math.log(x) for x in p if x > 0)
        scores = keep(scores, p >= min(sampling.eta, math.sqrt(sampling.eta) * math.exp(-entropy)))
    return softmax(scores)


TRANSFORMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.5},
    {"temperature": 0.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 99},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"min_p": 0.3},
    {"epsilon": 0.1},
    {"epsilon": 0.9},
    {"eta": 0.05},
    {"eta": 0.5},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.5},
    {"min_new_tokens": 3},
    {"min_new_tokens": 2},
    {"temperature": 0.0, "repetition_penalty": 4.0},
    {"temperature": 0.0, "min_new_tokens": 9},
    {"temperature": 0.7, "top_k": 4, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 5, "top_p": 0.95, "min_p": 0.1, "epsilon": 0.05, "eta": 0.1},
    {"temperature": 0.9, "repetition_penalty": 1.2, "min_new_tokens": 5, "top_k": 3, "min_p": 0.2},
]


def named(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items()) or "default"


@pytest.mark.parametrize("fields", TRANSFORMS, ids=named)
def test_p_is_the_reference_distribution(fields):
    p = made(**fields).target(torch.tensor(LOGITS), PREFIX)
    assert p.dtype == torch.float32
    assert p.tolist() == pytest.approx(reference(Sampling(**fields), PREFIX, truncate=True).tolist(), abs=1e-6)


@pytest.mark.parametrize("fields", TRANSFORMS, ids=named)
def test_q_is_the_reference_distribution_without_min_p_eta_and_epsilon(fields):
    q = drafted(made(**fields))
    assert q.tolist() == pytest.approx(reference(Sampling(**fields), PREFIX, truncate=False).tolist(), abs=1e-6)


@pytest.mark.parametrize("fields", TRANSFORMS, ids=named)
def test_q_is_truncated_like_p_when_asked_to(fields):
    distributions = made(**fields, truncate_draft=True)
    logits = torch.tensor(LOGITS)
    assert torch.equal(drafted(distributions), distributions.target(logits, PREFIX))


@pytest.mark.parametrize("fields", [{"min_p": 0.3}, {"eta": 0.5}, {"epsilon": 0.1}], ids=named)
def test_min_p_eta_and_epsilon_cut_the_target_and_leave_the_draft_whole(fields):
    distributions, logits = made(**fields), torch.tensor(LOGITS)
    assert int((distributions.target(logits, PREFIX) == 0).sum()) > 0
    assert int((drafted(distributions) == 0).sum()) == 0


def test_logits_of_half_precision_are_processed_in_float32():
    half = torch.tensor(LOGITS, dtype=torch.bfloat16)
    distributions = made(temperature=0.3)
    assert torch.equal(distributions.target(half, PREFIX), distributions.target(half.float(), PREFIX))


def test_an_id_that_cannot_be_emitted_has_probability_zero_under_every_transform():
    logits = torch.tensor([*LOGITS, -math.inf])
    for fields in TRANSFORMS:
        assert float(made(**fields).target(logits, PREFIX)[-1]) == 0.0


@pytest.mark.parametrize("temperature", [0.0, 9e-6])
def test_temperatures_below_the_greedy_constant_are_one_hot_for_p_and_q_alike(temperature):
    distributions, logits = made(temperature=temperature, top_k=3, min_p=0.5), torch.tensor(LOGITS)
    assert distributions.target(logits, PREFIX).tolist() == [1, 0, 0, 0, 0, 0]
    assert drafted(distributions).tolist() == [1, 0, 0, 0, 0, 0]


def test_growth_scores_are_penalised_but_neither_tempered_nor_truncated():
    plain = softmax(np.array(LOGITS))
    loud = made(temperature=0.2, top_k=1, top_p=0.3, min_p=0.9)
    assert own(loud).tolist() == pytest.approx(plain.tolist(), abs=1e-6)
    expected = reference(Sampling(repetition_penalty=2.0), PREFIX, truncate=False)
    penalised = own(made(repetition_penalty=2.0))
    assert penalised.tolist() == pytest.approx(expected.tolist())


# -- the library's own sampling -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network() -> LlamaForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(tiny_config("llama", head=64)).eval()


@pytest.mark.parametrize("fields", [one for one in TRANSFORMS if one.get("temperature") != 0.0], ids=named)
def test_p_is_what_the_library_samples_from_at_every_step(network, fields):
    prompt = torch.tensor([[5, 9, 9, 7]])
    sampling = Sampling(**fields)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        out: Any = network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=5,
            do_sample=True,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p or None,
            eta_cutoff=sampling.eta,
            epsilon_cutoff=sampling.epsilon,
            repetition_penalty=sampling.repetition_penalty,
            min_new_tokens=sampling.min_new_tokens or None,
            eos_token_id=[2, 11],
            pad_token_id=2,
            return_dict_in_generate=True,
            output_scores=True,
            output_logits=True,
        )
    ours = Distributions.of(sampling, frozenset({2, 11}), 4, CPU)
    assert out.scores
    for step, (scores, logits) in enumerate(zip(out.scores, out.logits, strict=True)):
        prefix = out.sequences[0, : 4 + step].tolist()
        assert torch.allclose(ours.target(logits[0], prefix), scores[0].float().softmax(-1), atol=1e-6)


# -- the true prefix ------------------------------------------------------------------------------------------------


def test_penalties_count_every_token_of_the_prefix_and_no_other():
    logits = torch.tensor([1.0, 1.0, 1.0])
    distributions = made(frozenset(), repetition_penalty=2.0)
    assert distributions.target(logits, [0]).tolist() == pytest.approx(softmax(np.array([0.5, 1, 1])).tolist())
    assert distributions.target(logits, [0, 2]).tolist() == pytest.approx(softmax(np.array([0.5, 1, 0.5])).tolist())


def test_a_minimum_length_counts_the_output_and_not_the_prompt():
    distributions = made(frozenset({0}), min_new_tokens=2)
    ends = [float(distributions.target(torch.zeros(3), [1] * length)[0]) for length in (2, 3, 4)]
    assert ends == [0.0, 0.0, pytest.approx(1 / 3)]


@pytest.mark.parametrize("shape", [ChainShape(gamma=4), TreeShape(steps=3, topk=2, nodes=6)])
def test_penalties_see_the_earlier_candidates_of_the_same_round(shape):
    """Logits never change, so a strong penalty makes greedy decoding take each token once, most probable first."""
    table = always(0.4, 0.3, 0.15, 0.1, 0.05)
    pair = fake_pair(table, table, vocabulary="abcde")
    request = Request(
        prompt="e",
        sampling=Sampling(temperature=0.0, repetition_penalty=10.0),
        stops=Stops(max_new_tokens=4),
        drafter=SmallModelDrafter(),
        shape=shape,
    )
    rounds = [one for one in generate([request], pair) if isinstance(one, Round)]  # type: ignore[arg-type]
    # log p ≤ 0, so the penalty multiplies: .4 → log .4 × 10, far below every token that has not been used
    assert [token for one in rounds for token in one.committed] == [0, 1, 2, 3]
    assert rounds[0].accepted == 3


@pytest.mark.parametrize("seed", range(4))
def test_under_a_penalty_a_self_draft_is_always_accepted_because_p_and_q_read_one_prefix(seed):
    table = hashed(5, seed)
    pair = fake_pair(table, table, vocabulary="abcde")
    request = Request(
        prompt="ab",
        sampling=Sampling(temperature=0.9, repetition_penalty=1.7, top_k=3),
        stops=Stops(max_new_tokens=30),
        drafter=SmallModelDrafter(),
        shape=ChainShape(gamma=4),
        seed=seed,
    )
    rounds = [one for one in generate([request], pair) if isinstance(one, Round)]  # type: ignore[arg-type]
    nodes = [node for one in rounds for node in one.nodes]
    assert nodes
    assert {node.accept_prob for node in nodes} == {1.0}
    assert {node.fate for node in nodes} == {"accepted"}


# -- drawing --------------------------------------------------------------------------------------------------------

ALMOST_ONE = math.nextafter(1.0, 0.0)


@pytest.mark.parametrize(
    ("distribution", "u", "token"),
    [
        ([0.5, 0.3, 0.2], 0.0, 0),
        ([0.5, 0.3, 0.2], 0.49, 0),
        ([0.5, 0.25, 0.25], 0.5, 1),
        ([0.5, 0.25, 0.25], 0.75, 2),
        ([0.5, 0.3, 0.2], ALMOST_ONE, 2),
        ([0.0, 0.0, 1.0, 0.0], 0.0, 2),
        ([0.0, 0.0, 1.0, 0.0], ALMOST_ONE, 2),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.5, 3),
        ([0.0, 0.5, 0.0, 0.5, 0.0], ALMOST_ONE, 3),
        ([1.0], 0.0, 0),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 1.0, 3),
    ],
)
def test_a_draw_is_the_token_at_which_the_cumulative_sum_passes_u(distribution, u, token):
    assert draw(torch.tensor(distribution), u) == token


@given(
    st.lists(st.sampled_from([0.0, 1e-38, 1e-7, 0.1, 1 / 3, 1.0]), min_size=1, max_size=20).filter(any),
    st.one_of(st.floats(0.0, 1.0, exclude_max=True), st.sampled_from([0.0, ALMOST_ONE])),
    st.sampled_from([1.0, 0.999999, 1.000001, 3.0]),
)
def test_a_draw_never_returns_a_token_of_probability_zero(weights, u, scale):
    distribution = torch.tensor(weights) * scale / sum(weights)
    assert float(distribution[draw(distribution, u)]) > 0.0


@given(st.lists(st.integers(0, 64), min_size=1, max_size=12).filter(any), st.integers(0, 2**16 - 1))
def test_a_draw_is_the_exact_inverse_of_the_cumulative_distribution(weights, numerator):
    u = numerator / 2**16
    expected = next(i for i in range(len(weights)) if sum(weights[: i + 1]) > Fraction(u) * sum(weights))
    assert draw(torch.tensor([float(weight) for weight in weights]), u) == expected


def test_tokens_rarer_than_float32_can_add_to_one_are_told_apart():
    distribution = torch.tensor([0.5, 0.5, 1e-9, 1e-9, 1e-9])
    total = 1 + 3e-9
    assert [draw(distribution, (1 + rest * 1e-9) / total) for rest in (0.5, 1.5, 2.5)] == [2, 3, 4]


def test_fifty_thousand_tokens_are_told_apart_to_the_last():
    distribution = torch.full((50_000,), 1 / 50_000)
    total = float(distribution.double().sum())
    for token in (0, 1, 24_999, 49_998, 49_999):
        assert draw(distribution, (token + 0.5) * float(distribution[0]) / total) == token


def chi_square(counts: Counter[int], expected: Tensor, draws: int) -> float:
    return sum((counts[i] - draws * p) ** 2 / (draws * p) for i, p in enumerate(expected.tolist()) if p > 0)


@pytest.mark.parametrize("stream", ["draft", "coin", "redraw"])
def test_a_thousand_draws_fit_their_distribution(stream):
    distribution = torch.tensor([0.4, 0.3, 0.2, 0.07, 0.03, 0.0])
    numbers = getattr(Streams.seeded(7), stream)
    counts = Counter(draw(distribution, numbers()) for _ in range(1000))
    assert chi_square(counts, distribution, 1000) < 18.47  # 99.9 % of χ² with 4 degrees of freedom
    assert counts[5] == 0


def test_a_one_hot_row_always_gives_its_token():
    assert {draw(one_hot(2, 4), u) for u in (0.0, 0.5, ALMOST_ONE)} == {2}


def test_scripted_streams_fail_when_asked_for_more_than_was_written():
    with pytest.raises(StopIteration):
        scripted(draft=[]).draft()
