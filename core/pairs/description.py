"""What a model says of itself before it is loaded: its size and its shape, from configuration and file headers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ModelUnavailable
from core.pairs import folders, weights

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "head_width": ("head_dim", "d_kv"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "vocabulary": ("vocab_size",),
}
"""What architectures call the same thing in their config.json."""


@dataclass(frozen=True, slots=True)
class Description:
    """One model. What its files don't say is None.

    ``kind``: architecture; ``parameters``: numbers in memory once loaded (a tied head counts once); ``disk_bytes``:
    of the weight files; ``packed_bytes``: what quantised weights take whatever precision is asked, else None;
    ``cache_numbers``: numbers one token adds to the KV cache, over all layers; ``context`` in tokens;
    ``vocabulary``: rows of the output head; ``int8_bytes``: what the weights take in the precision int8.
    """

    name: str
    kind: str
    parameters: int | None
    disk_bytes: int | None
    packed_bytes: int | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    context: int | None
    vocabulary: int | None
    cache_numbers: int | None
    chat_template: bool
    int8_bytes: int | None = None


def describe(name: str, folder: Path, config: Mapping[str, Any] | None = None) -> Description:
    """Describe the model in ``folder``; ``config`` is the library's complete configuration where it is at hand.

    A folder without weights (only its description was fetched) has no sizes but the one its index names. Raises
    ModelUnavailable when a file is damaged.
    """
    config = _json(name, folder / "config.json") if config is None else config
    text = _text_part(config)
    found = {field: _number(text, names) for field, names in _NAMES.items()}
    heads, width = found["heads"], found["width"]
    head_width = found["head_width"] or (width // heads if width and heads else None)
    kv_heads = found["kv_heads"] or heads
    stored = weights.read(name, folder) if folders.gap(folder) is None else None
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    quantised = bool(config.get("quantization_config"))
    return Description(
        name=name,
        kind=str(text.get("model_type") or config.get("model_type") or "unknown"),
        parameters=None if stored is None else stored.parameters - (stored.head if tied else 0),
        disk_bytes=_promised(folder) if stored is None else stored.disk_bytes,
        packed_bytes=stored.tensor_bytes if stored is not None and quantised else None,
        layers=found["layers"],
        heads=heads,
        kv_heads=kv_heads,
        context=found["context"],
        vocabulary=found["vocabulary"],
        cache_numbers=_cache_numbers(text, found["layers"], kv_heads, head_width),
        chat_template=_has_chat_template(folder),
        int8_bytes=None if stored is None else _int8_bytes(stored, tied, found["vocabulary"], found["width"]),
    )


def _int8_bytes(stored: weights.Weights, tied: bool, vocabulary: int | None, width: int | None) -> int | None:
    """Linear layers and head: one byte a number and a float32 scale a row (core/models/int8.py); the rest is float32. A
    tied head is int8 beside its embedding."""
    if vocabulary is None or width is None:
        return None
    linear, rest = stored.linear + vocabulary * width, stored.parameters - stored.head - stored.linear
    return linear + 4 * (stored.linear_rows + vocabulary) + 4 * rest


def _cache_numbers(text: Mapping[str, Any], layers: int | None, kv_heads: int | None, width: int | None) -> int | None:
    """layers × (keys + values) of one token. Latent attention (MLA) caches one latent and one rotary part instead."""
    if layers is None:
        return None
    latent, rotary = text.get("kv_lora_rank"), text.get("qk_rope_head_dim")
    if isinstance(latent, int) and isinstance(rotary, int):
        return layers * (latent + rotary)
    return None if kv_heads is None or width is None else layers * 2 * kv_heads * width


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that generates text (the whole, for most models)."""
    part = config.get("text_config")
    return part if isinstance(part, Mapping) else config


def _number(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if isinstance(value := text.get(name), int)), None)


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def _promised(folder: Path) -> int | None:
    """Bytes of weights that the index promises, for a model whose weights are not here."""
    try:
        total = json.loads((folder / folders.INDEX).read_text("utf-8"))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return int(total) if isinstance(total, int | float) else None


def _json(name: str, file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The {file.name} of {name} can't be read ({error}): fetch it again.") from None
    if not isinstance(found, dict):
        raise ModelUnavailable(f"The {file.name} of {name} is no JSON object: fetch it again.")
    return found
