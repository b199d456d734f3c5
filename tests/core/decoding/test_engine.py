"""The engine on tiny random models and table-driven fakes: equality with plain decoding, caches, seeds, faults."""

from __future__ import annotations

import math
from dataclasses import replace as replaced
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, GraniteConfig, MistralConfig

import core.decoding.engine
from core.decoding.engine import cycles, generate
from core.drafting import early_exit
from core.drafting.early_exit import shares_activations
from core.errors import BadInput
from core.records import Ended, Round, Started
from tests.helpers.checked import watched
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import LETTERS, FakePair, always, fake_pair, hashed, mixed, scripted
from tests.helpers.networks import PROMPTS, network, real_pair

CHAINS = [f"chain:{gamma}" for gamma in range(1, 9)]
TREES = ["s2_k2_d5", "s3_k2_d6", "s5_k1_d6"]


def agreeing_pair(vocab: int = 6, **options) -> FakePair:
    """Tables that agree often enough for every fate to occur."""
    target = hashed(vocab, seed=1)
    return fake_pair(target, mixed(target, hashed(vocab, seed=2), 0.6), vocabulary=LETTERS[:vocab], **options)


@pytest.fixture(scope="module")
def pair():
    return real_pair(draft=network(2, layers=1))


@pytest.mark.parametrize("shape", CHAINS + TREES)
@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:1", "early_exit:2"])
def test_greedy_speculative_tokens_are_the_plain_ones_alone_and_in_a_ragged_batch(pair, drafter, shape):
    plain = [decode(ask(prompt), pair).tokens for prompt in PROMPTS]
    assert decode(ask(PROMPTS[0], drafter, shape), pair).tokens == plain[0]
    batch = decode_all([ask(prompt, drafter, shape) for prompt in PROMPTS], pair)
    assert [one.tokens for one in batch] == plain


@pytest.mark.parametrize("kind", [MistralConfig, Gemma2Config])
@pytest.mark.parametrize(("drafter", "shape"), [("prompt_lookup", "chain:4"), ("early_exit:1", "s3_k2_d6")])
def test_greedy_equals_plain_on_models_with_sliding_windows(kind, drafter, shape):
    one = real_pair(network(3, kind=kind, sliding_window=5))
    assert decode(ask(drafter=drafter, shape=shape), one).tokens == decode(ask(), one).tokens


def test_the_plain_run_equals_the_librarys_own_generate(pair):
    prompt = pair.text.encode(ask())
    with torch.no_grad():
        ids = pair.target.network.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
        )
    assert decode(ask(), pair).tokens == ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("shape", ["chain:3", "s2_k2_d5", "s3_k2_d6"])
@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:2"])
def test_cached_logits_equal_a_fresh_forward_after_every_round_with_dead_rows_poisoned(monkeypatch, drafter, shape):
    target = network(1)
    one = real_pair(target, draft=network(1, layers=3))
    checked = watched(monkeypatch, target)
    for temperature in (0.0, 1.0):
        decode_all([ask(prompt, drafter, shape, temperature=temperature) for prompt in PROMPTS], one)
    assert sum(target.rows for target in checked) > 50


def test_the_cache_follows_a_branch_that_is_not_the_first(monkeypatch):
    target = network(1)
    checked = watched(monkeypatch, target)
    decode(ask(drafter="model", shape="s3_k2_d6", temperature=1.0), real_pair(target, draft=network(1)))
    assert checked[0].moved > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_drafting_for_itself_is_always_accepted(temperature):
    same = network(1)
    run = decode(
        ask(drafter="model", shape="chain:1", temperature=temperature, max_new_tokens=80), real_pair(same, same)
    )
    assert len(run.rounds) == 40
    assert run.summary.draft_acceptance_rate == 1.0
    assert {one.source for one in run.rounds} == {"bonus"}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_an_early_exit_after_all_layers_is_always_accepted(temperature):
    run = decode(
        ask(drafter="early_exit:3", shape="chain:1", temperature=temperature, max_new_tokens=80), real_pair(network(1))
    )
    assert run.summary.draft_acceptance_rate == 1.0


def test_self_drafting_for_fifty_rounds_of_four_commits_five_tokens_a_round():
    table = hashed(6, seed=1)
    run = decode(
        ask(drafter="model", shape="chain:4", temperature=1.0, max_new_tokens=250),
        fake_pair(table, table, vocabulary=LETTERS[:6]),
    )
    assert [len(one.committed) for one in run.rounds] == [5] * 50
    assert run.summary.draft_acceptance_rate == 1.0


def test_the_articles_round_is_replayed():
    """Draft A, C, B with draws .7, .9, .2: C is rejected and replaced by B; C and B are discarded (article)."""
    one = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
    run = decode(
        ask(drafter="model", shape="chain:3", temperature=1.0, max_new_tokens=4),
        one,
        streams=lambda _: scripted(draft=[0.1, 0.95, 0.65, 0.5], coin=[0.7, 0.9, 0.2], redraw=[0.2, 0.5, 0.5]),
        should_stop=after(1),
    )
    first = run.rounds[0]
    assert [one.text.vocabulary[node.token] for node in first.nodes] == ["a", "c", "b"]
    assert [node.fate for node in first.nodes] == ["accepted", "rejected", "unreached"]
    assert [node.accept_prob for node in first.nodes] == [
        pytest.approx(0.8333, abs=1e-4),
        pytest.approx(0.6667, abs=1e-4),
        None,
    ]
    assert [node.u for node in first.nodes] == [0.7, 0.9, None]
    assert first.committed == (0, 1)
    assert first.source == "correction"


def after(rounds: int):
    """A ``should_stop`` that lets this many rounds pass."""
    answers = iter([False] * rounds)
    return lambda: next(answers, True)


@pytest.mark.parametrize("place", range(5))
def test_an_end_token_at_each_place_of_a_draft_cuts_what_follows(place):
    """The model writes the letters in order; the letter at ``place`` of the round's output is the end token."""
    letters = len(LETTERS)
    successor = lambda prefix: [float(token == (prefix[-1] + 1) % letters) for token in range(letters)]  # noqa: E731
    one = fake_pair(successor, successor, vocabulary=LETTERS, eos=[1 + place])
    run = decode(ask("a", "model", "chain:4"), one)
    assert run.tokens == list(range(1, 2 + place))
    assert run.ended.stop_reason == "eos"
    fates = [node.fate for node in run.rounds[0].nodes]
    assert fates == ["accepted"] * min(4, place + 1) + ["cut"] * max(0, 3 - place)
    assert run.rounds[0].source == ("bonus" if place == 4 else "none")
    assert run.ended.text == LETTERS[1 : 1 + place]


def test_a_draft_shrinks_before_the_token_limit_so_that_nothing_is_drafted_in_vain():
    table = hashed(6, seed=1)
    run = decode(
        ask(drafter="model", shape="chain:4", max_new_tokens=8), fake_pair(table, table, vocabulary=LETTERS[:6])
    )
    assert [one.drafted for one in run.rounds] == [4, 2]
    assert run.ended.stop_reason == "max_new_tokens"
    assert len(run.tokens) == 8


@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:2"])
def test_at_the_contexts_end_the_draft_shrinks_and_decoding_stops(drafter):
    one = real_pair(draft=network(2, layers=1), context=20)
    run = decode(ask("abcabcab", drafter, "chain:5", max_new_tokens=500), one)
    assert len(run.tokens) == 12
    assert run.ended.stop_reason == "context_end"
    assert run.tokens == decode(ask("abcabcab", max_new_tokens=500), one).tokens


def test_a_draft_model_with_a_shorter_context_stops_drafting_at_its_end():
    one = real_pair(draft=network(2, layers=1))
    one.draft.context = 16
    run = decode(ask("abcabcab", "model", "chain:4", max_new_tokens=30), one)
    assert run.tokens == decode(ask("abcabcab", max_new_tokens=30), one).tokens
    assert {round_.drafted for round_ in run.rounds[-10:]} == {0}


@pytest.mark.parametrize(
    ("drafter", "shape"),
    [
        ("none", "none"),
        ("model", "chain:3"),
        ("model", "s3_k2_d6"),
        ("prompt_lookup", "chain:3"),
        ("early_exit:2", "chain:3"),
    ],
)
def test_a_request_gives_the_same_tokens_and_fates_alone_and_in_a_batch(pair, drafter, shape):
    requests = [ask(p, drafter, shape, temperature=0.9, seed=i) for i, p in enumerate(PROMPTS)]
    together = decode_all(requests, pair)
    for request, batched in zip(requests, together, strict=True):
        alone = decode(request, pair)
        assert batched.tokens == alone.tokens
        assert fates(batched) == fates(alone)
        for a, b in zip(alone.rounds, batched.rounds, strict=True):
            for left, right in zip(a.nodes, b.nodes, strict=True):
                assert (left.p, left.q) == (pytest.approx(right.p, abs=1e-4), pytest.approx(right.q, abs=1e-4))


def fates(run):
    return [[node.fate for node in one.nodes] for one in run.rounds]


def test_plain_requests_decode_beside_speculative_ones(pair):
    plain, speculative = ask(PROMPTS[0]), ask(PROMPTS[1], "model", "chain:3")
    together = decode_all([plain, speculative], pair)
    assert [one.tokens for one in together] == [decode(plain, pair).tokens, decode(speculative, pair).tokens]


def test_the_same_seed_repeats_a_run_and_another_seed_does_not():
    one = agreeing_pair()
    first, again, other = (
        decode(ask(drafter="model", shape="chain:3", temperature=1.0, seed=s), one) for s in (7, 7, 8)
    )
    assert (first.tokens, fates(first)) == (again.tokens, fates(again))
    assert first.tokens != other.tokens


def test_every_fate_and_source_occurs_in_a_long_sampled_run():
    run = decode(ask(drafter="model", shape="chain:4", temperature=1.0, max_new_tokens=200), agreeing_pair())
    assert {node.fate for one in run.rounds for node in one.nodes} == {"accepted", "rejected", "unreached"}
    assert {one.source for one in run.rounds} == {"correction", "bonus"}


def test_deterministic_candidates_have_q_one_and_carry_the_drafters_own_score():
    run = decode(ask(drafter="model", shape="s3_k2_d6", temperature=1.0), agreeing_pair())
    nodes = [node for one in run.rounds for node in one.nodes]
    assert {node.q for node in nodes} == {1.0}
    assert all(node.score is not None and 0.0 < node.score < 1.0 for node in nodes)


def test_visited_positions_store_the_top_tokens_and_the_mass_of_the_rest():
    run = decode(ask(drafter="model", shape="chain:2", temperature=1.0, max_new_tokens=9), agreeing_pair())
    for position in (position for one in run.rounds for position in one.positions):
        assert sum(top.p for top in position.top) + position.p_rest == pytest.approx(1.0, abs=1e-5)
        q = [top.q for top in position.top if top.q is not None]
        if position.q_rest is not None:
            assert sum(q) + position.q_rest == pytest.approx(1.0, abs=1e-5)
        else:
            assert q == []


def test_a_coin_next_to_its_threshold_is_flagged():
    one = fake_pair(always(0.5, 0.3, 0.2), always(0.6, 0.1, 0.3))
    coins = [0.5 / 0.6 - 4e-6, 0.5]
    run = decode(
        ask(drafter="model", shape="chain:2", temperature=1.0),
        one,
        streams=lambda _: scripted(draft=[0.1, 0.1], coin=coins, redraw=[0.2]),
        should_stop=after(1),
    )
    assert [node.near_threshold for node in run.rounds[0].nodes] == [True, False]


def test_a_fallback_of_the_redraw_is_told_on_the_rejected_candidate():
    one = fake_pair(always(0.5, 0.3, 0.2), always(0.0, 0.0, 1.0))
    run = decode(
        ask(drafter="model", shape="chain:1", rule="spec_cascade:0.5,redraw=draft_in_set", temperature=1.0),
        one,
        should_stop=after(1),
    )
    assert [(node.fate, node.redraw_fallback) for node in run.rounds[0].nodes] == [("rejected", True)]


# -- stops and ends -------------------------------------------------------------------------------------------------


def test_should_stop_ends_as_cancelled_within_a_round_with_the_rounds_so_far():
    run = decode(ask(drafter="model", shape="chain:2", max_new_tokens=100), agreeing_pair(), should_stop=after(3))
    assert len(run.rounds) == 3
    assert run.ended.stop_reason == "cancelled"
    assert run.ended.text == "".join(piece for one in run.rounds for piece in one.committed_text)


def test_cancelling_gives_up_no_round_that_waits_for_a_stop_string_to_complete():
    successor = lambda prefix: [float(token == (prefix[-1] + 1) % 6) for token in range(6)]  # noqa: E731
    one = fake_pair(successor, vocabulary=LETTERS[:6])
    run = decode(ask("a", stop=["bcdX"]), one, should_stop=after(2))
    assert run.tokens == [1, 2]
    assert run.ended.text == "bc"


def test_a_consumer_may_leave_anywhere_and_the_next_run_is_unharmed(pair):
    events = generate([ask(drafter="model", shape="chain:3")], pair)
    assert isinstance(next(events), Started)
    assert isinstance(next(events), Round)
    events.close()
    assert decode(ask(drafter="model", shape="chain:3"), pair).tokens == decode(ask(), pair).tokens


# -- faults ---------------------------------------------------------------------------------------------------------


def breaking(table, at: int, value: float):
    """``table`` until the prefix has ``at`` tokens; then one probability is ``value``."""
    return lambda prefix: [value, *table(prefix)[1:]] if len(prefix) >= at else table(prefix)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_target_row_fails_the_run_naming_round_and_node_and_keeps_its_rounds(value):
    table = hashed(6, seed=1)
    one = fake_pair(breaking(table, 13, value), table, vocabulary=LETTERS[:6])
    run = decode(ask("abab", "model", "chain:3", max_new_tokens=40), one)
    assert run.ended.stop_reason == "failed"
    assert run.ended.error == (
        "round 3: the target's logits after node 0 are NaN or infinite: try float32, or other weights."
    )
    assert len(run.rounds) == 2
    assert len(run.tokens) == 8


def test_a_broken_draft_row_fails_the_run_naming_the_node():
    table = hashed(6, seed=1)
    one = fake_pair(table, breaking(table, 6, math.nan), vocabulary=LETTERS[:6])
    run = decode(ask("abab", "model", "chain:4"), one)
    assert run.ended.error == (
        "round 1: the draft's logits after node 1 are NaN or infinite: try float32, or other weights."
    )


@pytest.mark.parametrize("shape", ["chain:1", "chain:3", "s2_k2_d5"])
def test_an_early_exit_whose_own_logits_break_at_the_root_fails_the_run_with_a_sentence(shape):
    target = network(1)
    request, one = ask(drafter="early_exit:2", shape=shape), real_pair(target)
    assert decode(request, one).ended.error is None  # that exits can be continued from is measured on whole weights
    target.model.layers[0].mlp.down_proj.weight.data[:] = math.nan
    assert decode(request, one).ended.error == (
        "round 1: the draft's logits after the root are NaN or infinite: try float32, or other weights."
    )


def test_in_a_batch_that_samples_alike_only_the_broken_request_fails():
    table = hashed(6, seed=1)
    one = fake_pair(breaking(table, 10, math.nan), table, vocabulary=LETTERS[:6])
    lengths = {"ab": 5, "abababab": 9}
    short, long = decode_all(
        [ask(prompt, max_new_tokens=length, temperature=1.0, eta=0.01) for prompt, length in lengths.items()], one
    )
    assert (short.ended.stop_reason, len(short.tokens)) == ("max_new_tokens", 5)
    assert long.ended.stop_reason == "failed"
    assert "the target's logits after the root are NaN or infinite" in (long.ended.error or "")


def test_in_a_batch_only_the_broken_request_fails():
    table = hashed(6, seed=1)
    one = fake_pair(breaking(table, 10, math.nan), table, vocabulary=LETTERS[:6])
    short, long = decode_all([ask("ab", max_new_tokens=5), ask("abababab", max_new_tokens=9)], one)
    assert (short.ended.stop_reason, len(short.tokens)) == ("max_new_tokens", 5)
    assert (long.ended.stop_reason, len(long.tokens)) == ("failed", 2)


def test_running_out_of_memory_fails_the_run_and_says_what_to_lower(monkeypatch):
    one: Any = agreeing_pair()
    network = one.target.network
    calls = iter([False] * 3)

    class Scarce(torch.nn.Module):
        config, device, dtype = network.config, network.device, network.dtype

        def forward(self, **arguments: Any) -> Any:
            if next(calls, True):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return network(**arguments)

    monkeypatch.setattr(one.target, "network", Scarce())
    run = decode(ask("ab"), one)
    assert run.ended.stop_reason == "failed"
    assert run.ended.error == (
        "out of memory on cpu in round 3 with 4 tokens: lower max_new_tokens, the prompt or choose a smaller model or "
        "precision."
    )
    assert len(run.rounds) == 2


@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ([], "There is nothing to decode: give at least one request."),
        ([ask("a" * 96)], "The prompt has 96 tokens and target holds 96, the answer included: shorten it."),
        (
            [ask(drafter="model", shape="chain:2"), ask(drafter="prompt_lookup", shape="chain:2")],
            "One batch has one drafter, not 2: send requests with different drafters separately.",
        ),
        (
            [ask(drafter="early_exit:9", shape="chain:2")],
            "early_exit:9 asks for more layers than target has (3).",
        ),
    ],
)
def test_requests_that_cannot_be_served_are_refused_in_a_sentence(pair, requests, sentence):
    with pytest.raises(BadInput) as refused:
        list(generate(requests, pair))
    assert str(refused.value) == sentence


def test_a_pair_without_a_draft_model_says_what_to_choose_instead():
    with pytest.raises(BadInput, match="The pair fake has no draft model: name one as TARGET\\+DRAFT"):
        list(generate([ask(drafter="model", shape="chain:2")], real_pair()))


def test_a_prompt_longer_than_the_drafts_context_is_refused_before_decoding():
    one = real_pair(draft=network(2, layers=1))
    one.draft.context = 4
    with pytest.raises(BadInput, match="the draft draft holds 4"):
        list(generate([ask(drafter="model", shape="chain:2")], one))


# -- early exit -----------------------------------------------------------------------------------------------------


def test_early_exit_reuses_the_activations_of_its_layers(pair):
    started = decode(ask(drafter="early_exit:2", shape="chain:2"), pair).started
    assert started.recomputed_share == 0.0


def test_an_architecture_that_cannot_continue_from_the_exit_recomputes_and_says_how_much():
    """Granite scales whatever embeddings it is given, so its upper layers can't start from activations."""
    one = real_pair(network(3, kind=GraniteConfig, layers=4, embedding_multiplier=3.0))
    run = decode(ask(drafter="early_exit:1", shape="chain:2"), one)
    assert run.started.recomputed_share == 0.25
    assert run.tokens == decode(ask(), one).tokens


def test_early_exit_runs_every_layer_once_per_node_but_for_a_last_candidate_that_nothing_reads(pair):
    model = pair.target.network
    shares_activations(model, 1)  # measured once a network, before anything is counted
    counts = dict.fromkeys(range(3), 0)
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, arguments, i=i: counts.__setitem__(i, counts[i] + arguments[0].shape[0] * arguments[0].shape[1])
        )
        for i, layer in enumerate(model.model.layers)
    ]
    run = decode(ask("ab", "early_exit:1", "chain:3", max_new_tokens=10), pair)
    for hook in hooks:
        hook.remove()
    read = sum(1 + one.drafted - (one.source == "correction") for one in run.rounds)
    assert {one.source for one in run.rounds} == {"correction", "bonus"}
    assert counts[0] == counts[1] == counts[2] == read + 1  # one prompt token was prefilled


@pytest.mark.parametrize("rule", ["lossless", "block"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_deferred_row_equals_a_fresh_forward_when_its_chain_is_wholly_accepted(monkeypatch, temperature, rule):
    target = network(1)
    checked = watched(monkeypatch, target)
    request = ask(drafter="early_exit:2", shape="chain:1", rule=rule, temperature=temperature, max_new_tokens=60)
    run = decode(request, real_pair(target))
    (one,) = checked
    assert one.computed == sum(round.source == "bonus" and round.drafted == 1 for round in run.rounds) > 0
    assert one.deferred == sum(round.drafted for round in run.rounds)


# -- peak memory and prefill ----------------------------------------------------------------------------------------


def test_peak_memory_on_the_cpu_is_the_process_peak_and_labelled_so(pair):
    ended = decode(ask(), pair).ended
    assert ended.peak_memory_kind == "process_rss"
    assert (ended.peak_memory_bytes or 0) > 50e6


def test_records_are_frozen(pair):
    run = decode(ask(), pair)
    first: Any = run.rounds[0]
    with pytest.raises(AttributeError):
        first.index = 5
    assert replaced(run.rounds[0], index=5).index == 5
    assert isinstance(run.ended, Ended)


def test_every_round_on_the_device_is_a_cycle_though_a_stop_string_holds_its_telling_back():
    pair: Any = fake_pair(always(0.0, 1.0, 0.0))
    request = ask("ab", max_new_tokens=6, stop=["bbc"])
    told = list(cycles([request], pair))
    assert [[type(event).__name__ for event in events] for events in told] == [
        ["Started"],
        [],
        [],
        ["Round"],
        ["Round"],
        ["Round"],
        ["Round", "Round", "Round", "Ended"],
    ]


def test_closing_a_run_between_two_events_of_a_cycle_closes_the_cycle(monkeypatch):
    closed = []

    def two_at_once(*_, **__):
        try:
            yield Started(0, 1, 0.0), Started(1, 1, 0.0)
        finally:
            closed.append(True)

    monkeypatch.setattr(core.decoding.engine, "cycles", two_at_once)
    pair: Any = agreeing_pair()
    events = generate([ask()], pair)
    assert next(events).request == 0
    assert closed == []
    events.close()
    assert closed == [True]


@pytest.mark.parametrize("shape", ["s3_k3_d6", "s4_k4_d7"])
def test_the_activations_of_a_tree_that_drops_computed_candidates_stay_with_their_nodes(monkeypatch, shape):
    target = network(1, layers=4)
    checked = watched(monkeypatch, target)
    moved = counted_moves(monkeypatch)
    for prompt in PROMPTS:
        decode(ask(prompt, "early_exit:3", shape, max_new_tokens=16), real_pair(target))
    assert sum(one.rows for one in checked) > 50
    assert moved


def counted_moves(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Orders into which an early exit brought the rows of its scratch, other than the one they were in."""
    moved: list[list[int]] = []
    original = early_exit._ordered

    def ordered(rows: torch.Tensor, order: list[int]) -> torch.Tensor:
        if order != list(range(len(order))):
            moved.append(order)
        return original(rows, order)

    monkeypatch.setattr(early_exit, "_ordered", ordered)
    return moved
