"""Tiny random models and tokenizers, saved the way a hub folder is: real loading code, no download, under a second.

Weights are drawn from a seed with a spread that makes distributions neither flat nor one-hot. Nothing here is trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

ModelType = Literal["llama", "qwen2", "qwen3", "mistral", "gemma", "gpt2"]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS = 2
"""Id of ``<|im_end|>`` in both tokenizers below."""

_CORPUS = ["the quick brown fox jumps over the lazy dog. " * 3, "the target and the draft; the end of the round. " * 3]


def byte_level_tokenizer(vocab: int = 300) -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2, Qwen and Llama 3 have: 3 special tokens, 256 bytes, the rest merges.

    Merges come from a fixed corpus, then from pairs of bytes, so that any ``vocab`` ≥ 259 is exactly reached.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False
    )
    backend.train_from_iterator(_CORPUS, trainer)
    missing = vocab - backend.get_vocab_size()
    backend.add_tokens([AddedToken(f"<extra_{n}>", normalized=False) for n in range(missing)])
    return _wrapped(backend)


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """SentencePiece style as Llama 2 and Gemma have: ▁ for spaces, ``<0x00>`` … ``<0xFF>`` for unknown characters."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz.,;!?0123456789\n"]
    words = ["▁t", "▁th", "▁the", "▁a", "▁d", "▁do", "▁dog"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "a"), ("▁", "d"), ("▁d", "o"), ("▁do", "g")]
    entries = [*SPECIAL, "<unk>", *(f"<0x{b:02X}>" for b in range(256)), *letters, *words]
    model = models.BPE(
        vocab={entry: n for n, entry in enumerate(entries)}, merges=merges, byte_fallback=True, unk_token="<unk>"
    )
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return _wrapped(backend)


def _wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[2],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_config(
    model_type: ModelType = "llama",
    *,
    layers: int = 2,
    head: int = 300,
    context: int = 512,
    window: int = 8,
    tie: bool = False,
) -> Any:
    """Configuration of a tiny model: hidden 32, 4 query and 2 key/value heads of width 8.

    ``head`` is the number of rows of the output head; ``window`` the sliding window in tokens (mistral: every layer,
    gemma: every other layer).
    """
    common: dict[str, Any] = {
        "vocab_size": head,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": context,
        "initializer_range": 0.2,
        "tie_word_embeddings": tie,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": EOS,
    }
    match model_type:
        case "llama":
            return LlamaConfig(**common)
        case "qwen2":
            return Qwen2Config(**common, use_sliding_window=False)
        case "qwen3":
            return Qwen3Config(**common)
        case "mistral":
            return MistralConfig(**common, sliding_window=window)
        case "gemma":
            kinds = ["sliding_attention" if n % 2 == 0 else "full_attention" for n in range(layers)]
            return Gemma3TextConfig(**common, sliding_window=window, layer_types=kinds, query_pre_attn_scalar=8)
        case "gpt2":
            return GPT2Config(
                vocab_size=head,
                n_embd=32,
                n_layer=layers,
                n_head=4,
                n_positions=context,
                initializer_range=0.2,
                tie_word_embeddings=tie,
                bos_token_id=1,
                eos_token_id=EOS,
                pad_token_id=EOS,
            )


def save_tiny_model(
    folder: Path,
    *,
    seed: int,
    layers: int = 2,
    vocab: int = 300,
    model_type: ModelType = "llama",
    head: int | None = None,
    context: int = 512,
    window: int = 8,
    tie: bool = False,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> Path:
    """Save a random model and its tokenizer into ``folder`` (safetensors, float32) and return the folder.

    ``vocab`` is the tokenizer's size (≥ 259), ``head`` the head's rows when padded wider. Same arguments, same weights.
    """
    tokenizer = tokenizer or byte_level_tokenizer(vocab)
    config = tiny_config(
        model_type, layers=layers, head=head or len(tokenizer), context=context, window=window, tie=tie
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
