"""Our engine and transformers decode a tiny random network: same tokens, and what they computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.bench import flashspec_peer
from core.bench.agreement import NearTie, OutputCheck
from core.bench.contender import Answer, Contender, Ours, Workload
from core.bench.flashspec_peer import FlashspecPeer
from core.bench.machine import peak
from core.bench.prompts import Prompt
from core.bench.settings import Setting
from core.bench.transformers_peer import TransformersPeer, passes, until_end
from core.cache.forwards import collected, forward
from core.errors import EngineFault, PeerUnavailable
from core.types import EarlyExitDrafter, PromptLookupDrafter

TEXTS = ("the fox jumps over the fox jumps over the", "the end of the dog", "a", "over and over and")
TOKENS = 24


def workload_of(pair: Any, setting: Setting, tokens: int = TOKENS) -> Workload:
    requests = tuple(setting.request(Prompt(text, chat=False), tokens) for text in TEXTS[: setting.batch])
    return Workload(setting, requests, tuple(tuple(pair.text.encode(one)) for one in requests), tokens)


def decoded(contender: Contender, workload: Workload, watched: bool = True) -> Answer:
    with contender.ready(workload, watched) as decode:
        return decode()


SETTINGS = (
    Setting(),
    Setting(batch=4),
    Setting(PromptLookupDrafter(), 2),
    Setting(PromptLookupDrafter(), 8),
    Setting(EarlyExitDrafter(layers=1), 2),
    Setting(EarlyExitDrafter(layers=1), 4),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
@pytest.mark.parametrize("same_linears", [False, True])
def test_transformers_decodes_the_same_tokens(tiny_pair, setting, same_linears):
    workload = workload_of(tiny_pair, setting)
    ours, theirs = decoded(Ours(tiny_pair), workload), decoded(TransformersPeer(tiny_pair, same_linears), workload)
    for prompt, a, b in zip(workload.prompts, ours.outputs, theirs.outputs, strict=True):
        assert OutputCheck(tiny_pair).check(prompt, a, b, "transformers") is None
        assert len(a) == TOKENS or a[-1] in tiny_pair.text.eos
    assert ours.rounds is not None and theirs.rounds is not None
    if isinstance(setting.drafter, EarlyExitDrafter):
        assert ours.rounds == theirs.rounds


def test_transformers_gets_its_own_settings_back_and_no_hook_stays(tiny_pair):
    network = tiny_pair.target.network
    own = network.generation_config
    before = own.to_dict()
    decoded(TransformersPeer(tiny_pair), workload_of(tiny_pair, SETTINGS[-1]))
    assert network.generation_config is own
    assert own.to_dict() == before
    assert not network._forward_pre_hooks
    assert network.config.num_hidden_layers == 2


def test_a_penalty_of_the_models_own_settings_does_not_count(tiny_pair, monkeypatch):
    monkeypatch.setattr(tiny_pair.target.network.generation_config, "repetition_penalty", 5.0)
    workload = workload_of(tiny_pair, SETTINGS[0])
    assert decoded(TransformersPeer(tiny_pair), workload).outputs == decoded(Ours(tiny_pair), workload).outputs


def test_settings_that_do_not_reach_the_early_exit_are_an_error(tiny_pair, monkeypatch):
    from core.bench import transformers_peer

    whole = transformers_peer.GenerationConfig

    def careless(**settings: Any) -> Any:
        return whole(**{**settings, "assistant_confidence_threshold": 0.99})

    monkeypatch.setattr(transformers_peer, "GenerationConfig", careless)
    with pytest.raises(EngineFault, match="its settings did not take effect"):
        decoded(TransformersPeer(tiny_pair), workload_of(tiny_pair, SETTINGS[-1]))


def test_transformers_assists_single_requests_only(tiny_pair):
    peer = TransformersPeer(tiny_pair)
    assert peer.unsupported(Setting(PromptLookupDrafter(), 2, batch=4)) != ""
    assert peer.unsupported(Setting(batch=4)) == peer.unsupported(Setting(PromptLookupDrafter(), 2)) == ""


def test_passes_are_counted_by_depth_and_width(tiny_pair):
    network = tiny_pair.target.network
    with passes(network) as seen, torch.no_grad():
        network(torch.tensor([[5, 6, 7]]))
        network(input_ids=torch.tensor([[8]]))
    network(torch.tensor([[9]]))
    assert [(one.layers, one.width, one.last) for one in seen] == [(2, 3, 7), (2, 1, 8)]


def test_what_follows_an_end_token_is_padding():
    assert until_end([5, 2, 2, 7], frozenset({2})) == (5, 2)
    assert until_end([5, 6], frozenset({2})) == (5, 6)


# -- flashspec ------------------------------------------------------------------------------------------------------


def test_without_flashspec_the_error_names_how_to_install_it(tiny_pair, monkeypatch):
    monkeypatch.setattr(flashspec_peer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PeerUnavailable, match=r"run `pip install -r requirements-bench\.txt`, or leave it out"):
        FlashspecPeer(tiny_pair)


def test_flashspec_decodes_the_same_tokens_where_it_is_installed(tiny_pair):
    pytest.importorskip("flashspec", reason="an optional peer (requirements-bench.txt)")
    peer, workload = FlashspecPeer(tiny_pair), workload_of(tiny_pair, SETTINGS[2])
    ours, theirs = decoded(Ours(tiny_pair), workload), decoded(peer, workload)
    assert theirs.outputs == ours.outputs
    assert theirs.rounds == ours.rounds
    assert [one for one in SETTINGS if not peer.unsupported(one)] == list(SETTINGS[2:4])


# -- agreement ------------------------------------------------------------------------------------------------------


def test_outputs_that_part_where_the_network_is_decided_are_an_error(tiny_pair):
    workload = workload_of(tiny_pair, SETTINGS[0])
    (right,) = decoded(Ours(tiny_pair), workload).outputs
    wrong = (*right[:3], (right[3] + 1) % 300, *right[4:])
    with pytest.raises(EngineFault, match=rf"x chose token {wrong[3]} at new token 3 .* no near-tie"):
        OutputCheck(tiny_pair).check(workload.prompts[0], right, wrong, "x")


def test_outputs_that_part_between_two_equally_likely_tokens_are_a_near_tie(tiny_pair):
    head = tiny_pair.target.network.lm_head.weight
    workload = workload_of(tiny_pair, SETTINGS[0])
    (right,) = decoded(Ours(tiny_pair), workload).outputs
    other = next(token for token in range(10, 300) if token not in right)
    before = head[other].clone()
    try:
        head[other] = head[right[2]] * (1 - 1e-6)
        tie = OutputCheck(tiny_pair).check(workload.prompts[0], right, (*right[:2], other, 5, 5), "x")
    finally:
        head[other] = before
    assert isinstance(tie, NearTie)
    assert (tie.position, tie.tokens) == (2, (right[2], other))
    assert 0 < tie.margin < 1e-3


def test_an_output_that_only_ends_sooner_is_an_error(tiny_pair):
    with pytest.raises(EngineFault, match="x gave 1 tokens and this engine 2"):
        OutputCheck(tiny_pair).check((5,), (6, 7), (6,), "x")


# -- what is observed -----------------------------------------------------------------------------------------------


def test_the_share_outside_forwards_is_of_the_rounds_and_not_of_the_prefill(tiny_pair):
    answer = decoded(Ours(tiny_pair), workload_of(tiny_pair, SETTINGS[0]), watched=False)
    assert answer.decode_s is not None and answer.forward_s is not None
    assert 0 < answer.forward_s < answer.decode_s


def test_forward_passes_are_counted_only_while_they_are_collected(tiny_pair):
    workload = workload_of(tiny_pair, SETTINGS[0], tokens=5)
    with collected() as outer:
        decoded(Ours(tiny_pair), workload)
    assert outer.passes == 0  # the inner collection took them
    from core.decoding.engine import generate

    with collected() as forwards:
        list(generate(workload.requests, tiny_pair))
    assert forwards.passes == 6  # the prefill and five rounds
    forwards.forget()
    list(generate(workload.requests, tiny_pair))
    assert (forwards.passes, forwards.seconds) == (0, 0.0)


def test_a_forward_that_fails_raises_through_the_border():
    with collected() as forwards, pytest.raises(EngineFault), forward(torch.device("cpu")):
        raise EngineFault("it broke.")
    assert forwards.passes == 0


def test_a_peak_of_memory_is_that_of_the_body_where_the_system_can_forget(tmp_path):
    with peak(torch.device("cpu"), clear=tmp_path / "absent" / "clear_refs") as since_start:
        pass
    assert since_start.kind == "process_rss_since_start"
    assert since_start.bytes > 1 << 20
