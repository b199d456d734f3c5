"""A model's size and shape before it is loaded, from its configuration and its weight files' headers. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ModelUnavailable
from core.pairs import files, folders
from core.pairs.files import StoredTensor

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "head_width": ("head_dim", "d_kv"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "vocabulary": ("vocab_size",),
}
"""The field's names in the config.json of different architectures."""

HEAD = "lm_head.weight"
NOT_LINEAR = re.compile(r"emb|\bwte\b|\bwpe\b|\bexperts\b|\brouter\b|\bgate\.weight$")
"""Occurs in the names of matrices that are no linear layers: embeddings, mixtures of experts."""

EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in)\.weight$")
"""Occurs in the names of token embeddings."""


@dataclass(frozen=True, slots=True)
class Description:
    """One model; None where its files don't say.

    ``kind``: architecture; ``parameters``: numbers in memory once loaded (a tied head counts once); ``disk_bytes``:
    size of the weight files; ``packed_bytes``: size of quantised weights in any precision, None if not quantised;
    ``cache_numbers``: numbers that one token adds to the KV cache, over all layers; ``context``: tokens;
    ``vocabulary``: rows of the output head; ``int8_bytes``: size of the weights in the precision int8.
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


@dataclass(frozen=True, slots=True)
class Weights:
    """Contents of a model's weight files. ``parameters``: stored numbers; ``tensor_bytes``: their size as stored;
    ``disk_bytes``: size of the files; ``head``: parameters of an output head that is stored as a tensor of its own;
    ``linear``: parameters of the linear layers that int8 quantises, without the head; ``linear_rows``: their rows;
    ``own_head``: whether that head holds other numbers than the embedding; ``embedding_rows``: tokens in the
    embedding; ``formats``: number formats in the files."""

    parameters: int
    tensor_bytes: int
    disk_bytes: int
    head: int
    linear: int = 0
    linear_rows: int = 0
    own_head: bool = False
    embedding_rows: int | None = None
    formats: tuple[str, ...] = ()


def describe(name: str, folder: Path, config: Mapping[str, Any] | None = None) -> Description:
    """Describes the model in ``folder``; ``config`` is the library's complete configuration, if the caller has it.

    Without weights (only the configuration was downloaded) the only size is the one that the index states. Raises
    ModelUnavailable when a file is damaged.
    """
    config = _json(name, folder / "config.json") if config is None else config
    text = _text_part(config)
    found = {field: _number(text, names) for field, names in _NAMES.items()}
    heads, width = found["heads"], found["width"]
    head_width = found["head_width"] or (width // heads if width and heads else None)
    kv_heads = found["kv_heads"] or heads
    stored = read_weights(name, folder) if folders.lack(folder) is None else None
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    if stored is not None and stored.own_head:
        tied = False  # the library ties only what is equal
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


def _int8_bytes(stored: Weights, tied: bool, vocabulary: int | None, width: int | None) -> int | None:
    """Linear layers and head take a byte a number and a float32 scale a row (core/models/int8.py), the rest float32. A
    tied head is stored in int8 beside its embedding."""
    if vocabulary is None or width is None:
        return None
    linear, rest = stored.linear + vocabulary * width, stored.parameters - stored.head - stored.linear
    return linear + 4 * (stored.linear_rows + vocabulary) + 4 * rest


def _cache_numbers(text: Mapping[str, Any], layers: int | None, kv_heads: int | None, width: int | None) -> int | None:
    """layers × (keys + values) of one token; latent attention (MLA) caches a latent and a rotary part instead."""
    if layers is None:
        return None
    latent, rotary = text.get("kv_lora_rank"), text.get("qk_rope_head_dim")
    if isinstance(latent, int) and isinstance(rotary, int):
        return layers * (latent + rotary)
    return None if kv_heads is None or width is None else layers * 2 * kv_heads * width


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the part that generates text (for most models, the whole)."""
    part = config.get("text_config")
    return part if isinstance(part, Mapping) else config


def _number(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((value for name in names if isinstance(value := text.get(name), int)), None)


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(files.read_json(folder / "tokenizer_config.json").get("chat_template"))
    except ValueError:
        return False


def _promised(folder: Path) -> int | None:
    """Bytes of weights that the index states, for a model whose weights are not on this machine."""
    try:
        total = files.read_json(folder / folders.INDEX, files.WeightIndex).metadata.total_size
    except ValueError:
        return None
    return None if total is None else int(total)


def _json(name: str, file: Path) -> Mapping[str, Any]:
    try:
        return files.read_json(file)
    except ValueError as error:
        raise ModelUnavailable(f"The model {name} {error}: fetch it again.") from None


# -- the headers of weight files ---------------------------------------------------------------------------------------


def read_weights(name: str, folder: Path) -> Weights:
    """Reads the headers of the model's weight files (kilobytes), and a head beside an embedding to compare the two.
    ``folder`` must be complete. Raises ModelUnavailable naming the damaged file."""
    stored: dict[str, StoredTensor] = {}
    disk_bytes = 0
    for file in folders.weight_files(folder):
        try:
            stored |= files.stored_tensors(file)
            disk_bytes += file.stat().st_size
        except (OSError, ValueError) as error:
            problem = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise ModelUnavailable(
                f"The weight file {file.name} of {name} is damaged ({problem}): fetch it again."
            ) from None
    linear = [tensor for at, tensor in stored.items() if _is_linear(at, tensor.shape)]
    head, embedding = stored.get(HEAD), next((t for at, t in stored.items() if EMBEDDING.search(at)), None)
    return Weights(
        parameters=sum(tensor.numbers for tensor in stored.values()),
        tensor_bytes=sum(tensor.stop - tensor.start for tensor in stored.values()),
        disk_bytes=disk_bytes,
        head=0 if head is None else head.numbers,
        linear=sum(tensor.numbers for tensor in linear),
        linear_rows=sum(tensor.shape[0] for tensor in linear),
        own_head=head is not None and not (embedding is not None and files.same_bytes(head, embedding)),
        embedding_rows=None if embedding is None else embedding.shape[0],
        formats=tuple(sorted({tensor.dtype for tensor in stored.values()})),
    )


def _is_linear(tensor: str, shape: tuple[int, ...]) -> bool:
    """Whether the tensor is a layer's matrix, by its name. Experts and their routers load as no linear layers."""
    matrix = len(shape) == 2 and tensor.endswith(".weight") and tensor != HEAD
    return matrix and not NOT_LINEAR.search(tensor)
