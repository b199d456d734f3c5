"""Rotary factors that switch with length: every request gets what the library's own ``generate`` gives it alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, PhimoeConfig

from core.cache.rotary import rereads_at
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import LETTERS
from tests.helpers.networks import real_pair

BORDER = 24
ROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 3.0, 6.0, 9.0],
    "original_max_position_embeddings": BORDER,
}
SIZES: dict[str, Any] = {
    "vocab_size": len(LETTERS),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
SWITCH: dict[str, Any] = {"original_max_position_embeddings": BORDER}
KINDS = {
    "llama": LlamaConfig(**SIZES, rope_parameters=ROPE),
    "phi3": Phi3Config(**SIZES, **SWITCH, rope_parameters=ROPE),
    "phimoe": PhimoeConfig(
        **SIZES,
        num_local_experts=2,
        **SWITCH,
        rope_parameters={**ROPE, "short_mscale": 1.0, "long_mscale": 1.4},
    ),
}
PROMPTS = {"far below": "abcde", "just below": "abcdefghabcdefghabcdefg", "on": "abcdefghabcdefghabcdefgh"}
PROMPTS["past"] = PROMPTS["on"] + "acbd"


def made(config: Any) -> Any:
    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.fixture(scope="module", params=KINDS)
def network(request: pytest.FixtureRequest) -> Any:
    return made(KINDS[request.param])


NEW = 22
"""Tokens after each prompt: all cross the border or begin past it."""


@cache
def theirs(network: Any, prompt: str) -> list[int]:
    """Tokens of the library's own generate, from a model that has served nothing else."""
    ids = torch.tensor([[LETTERS.index(letter) for letter in prompt]])
    with torch.no_grad():
        out = network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW
        )
    return out[0, ids.shape[1] :].tolist()


MODES = {
    "plain": ("none", "none"),
    "a chain of a draft": ("model", "chain:3"),
    "a tree of a draft": ("model", "s3_k2_d6"),
    "a chain of an early exit": ("early_exit:1", "chain:3"),
    "prompt lookup": ("prompt_lookup", "chain:3"),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_requests_below_and_past_the_border_decode_together_as_the_library_decodes_each_alone(network, mode):
    pair = real_pair(network, network)
    requests = [ask(prompt, *mode, max_new_tokens=NEW) for prompt in PROMPTS.values()]
    for prompt, one in zip(PROMPTS.values(), decode_all(requests, pair), strict=True):
        assert one.tokens == theirs(network, prompt)


def test_a_prompt_in_chunks_gets_the_factors_of_its_whole_length(network, monkeypatch):
    monkeypatch.setattr("core.cache.slots.PREFILL_CHUNK", 5)
    assert decode(ask(PROMPTS["past"], max_new_tokens=NEW), real_pair(network)).tokens == theirs(
        network, PROMPTS["past"]
    )


def test_the_switch_shows_in_the_tokens_so_the_tests_above_can_fail(network):
    """With one border for the whole pass, as the library has, the short request is another one."""
    text = network.config
    alone = theirs(network, PROMPTS["far below"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.cache.slots.by_row", lambda network: (network, []))
        requests = [ask(prompt, max_new_tokens=NEW) for prompt in (PROMPTS["far below"], PROMPTS["past"])]
        short, _ = decode_all(requests, real_pair(network))
    assert short.tokens != alone, text.model_type


def test_models_that_read_a_grown_request_anew_are_told_by_the_librarys_own_step(network):
    anew = network.config.model_type in ("phi3", "phimoe")
    assert rereads_at(network) == (BORDER if anew else None)


def test_the_network_itself_keeps_the_librarys_module(network):
    own = network.base_model.rotary_emb
    real = real_pair(network)
    decode(ask("abc", max_new_tokens=2), real)
    assert network.base_model.rotary_emb is own
