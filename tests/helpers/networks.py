"""Random library networks in memory: one of every kind of attention, and pairs of tiny Llamas over sixteen letters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from core.cache.rotary import rereads_at
from tests.helpers.fakes import LETTERS, always, fake_pair

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
}

CONFIGS = {
    "llama, all layers full": LlamaConfig(**SIZES),
    "qwen2, all layers full": Qwen2Config(**SIZES),
    "qwen2, full and sliding": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "qwen3, own head width": Qwen3Config(**SIZES, head_dim=16),
    "mistral, all layers sliding": MistralConfig(**SIZES, sliding_window=4),
    "gemma2, eager attention": Gemma2Config(**SIZES, head_dim=8, sliding_window=5, query_pre_attn_scalar=8),
    "gemma3, full and sliding": Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=5),
}

PROMPTS = ["abcabcab", "ba", "cabbacabbacab", "aaaaaaaaab"]


def network(seed: int, layers: int = 3, kind: Any = LlamaConfig, **more: Any) -> Any:
    torch.manual_seed(seed)
    config = kind(
        vocab_size=len(LETTERS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=96,
        initializer_range=0.3,
        pad_token_id=0,
        **more,
    )
    return AutoModelForCausalLM.from_config(config).eval()


def real_pair(target=None, draft=None, *, eos=(), context=96) -> Any:
    """Random transformers over sixteen letters, with the fake codec."""
    pair = fake_pair(always(1.0), vocabulary=LETTERS, eos=eos, context=context)
    network_ = target or network(1)
    pair.target = SimpleNamespace(
        name="target", content_hash="t", network=network_, context=context, rereads_at=rereads_at(network_)
    )
    if draft is not None:
        pair.draft = SimpleNamespace(name="draft", content_hash="d", network=draft, context=context)
    return pair
