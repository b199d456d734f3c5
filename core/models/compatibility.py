"""Requirements for a model to decode here, checked before any weight is read: cache, positions, vocabulary."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from core.errors import ModelUnavailable
from core.models.attention import FUSED, GROUPED
from core.pairs.findings import TokenDifference

ROLLS_BACK = frozenset({"full_attention", "sliding_attention"})
"""Attention with cache rows per token, so that the cache can be cut to any length."""

NOT_CAUSAL = "is of a kind ({kind}) that doesn't generate text token by token: choose a decoder-only model."
"""End of the sentence about a model in which a token's logits depend on later tokens."""


def refusal(config: PreTrainedConfig) -> str | None:
    """Why a model can't run here, as the end of a sentence that begins with its name; None when it can.

    Required: decoder-only, attention in every layer over a cache of rows per token, explicit positions (the branches
    of a tree share them). Latent attention (MLA) qualifies: the library caches one latent row per token.
    """
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        return f"is an encoder-decoder ({kind}): choose a decoder-only model."
    network = _network_class(config)
    if network is None or (_asks_for_decoder(network) and not getattr(config, "is_decoder", False)):
        return NOT_CAUSAL.format(kind=kind)
    text = text_config(config)
    other = sorted(set(layer_types(text)) - ROLLS_BACK)
    if other or getattr(network, "_is_stateful", False):
        what = f"layers of the kinds {', '.join(other)}" if other else "recurrent state"
        return (
            f"({kind}) keeps {what}: recurrent, compressed or chunked state can't be cut back after a rejection. "
            "Choose a model with full or sliding-window attention in every layer."
        )
    if getattr(text, "num_kv_shared_layers", 0) or "reuse" in (getattr(text, "kv_sharing_modes", None) or ()):
        return f"({kind}) shares cache rows between layers, which the slot cache can't do: choose another model."
    takes = inspect.signature(network.forward).parameters
    if not {"cache", "past_key_values"} & set(takes):
        return f"({kind}) has no key/value cache: choose another model."
    if "position_ids" not in takes or getattr(text, "alibi", False):
        return f"({kind}) takes no explicit positions, so the branches of a tree can't be placed: choose another model."
    if not getattr(text, "max_position_embeddings", None):
        return f"({kind}) doesn't say how long its context is: add max_position_embeddings to its config.json."
    return None


def attention(config: PreTrainedConfig, on_cpu: bool) -> str:
    """The attention implementation to load a model with: fused where the architecture allows, else eager (Gemma 2)."""
    network = _network_class(config)
    if not getattr(network, "_supports_sdpa", False):
        return "eager"
    own = not getattr(network, "_supports_attention_backend", False)  # chooses among its own classes (Falcon)
    return GROUPED if on_cpu and not own else FUSED


def _asks_for_decoder(network: Any) -> bool:
    """True for an encoder that the library lists as causal too: the class says that ``is_decoder`` makes it so."""
    return "is_decoder=True" in inspect.getsource(network.__init__)


def _network_class(config: PreTrainedConfig) -> Any:
    found = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


def text_config(config: PreTrainedConfig) -> Any:
    """The configuration of the part that generates text (for most models, the whole)."""
    return config.get_text_config(decoder=True)


def layer_types(text: Any) -> list[str]:
    """Attention kinds of the layers, determined as the library's own caches do."""
    named = getattr(text, "layer_types", None)
    if named is not None:
        return list(named)
    if getattr(text, "attention_chunk_size", None) is not None:
        return ["chunked_attention"]
    return ["sliding_attention" if getattr(text, "sliding_window", None) is not None else "full_attention"]


def emitted(vocabulary: Mapping[str, int]) -> int:
    """Number of ids that a tokenizer can emit: its largest id + 1."""
    return max(vocabulary.values()) + 1


def differences(ours: Mapping[str, int], theirs: Mapping[str, int], ids: int) -> list[TokenDifference]:
    """Ids below ``ids`` that are different tokens in the two vocabularies (maps from token to id), in order."""
    our_token = {i: token for token, i in ours.items()}
    their_token = {i: token for token, i in theirs.items()}
    shared = sorted(i for i in our_token.keys() & their_token.keys() if i < ids)
    return [TokenDifference(i, our_token[i], their_token[i]) for i in shared if our_token[i] != their_token[i]]


def check_vocabularies(
    target: str, ours: Mapping[str, int], draft: str, theirs: Mapping[str, int], vocab: int, draft_head: int
) -> None:
    """Checks that every id that target and draft can both emit is the same token in both (design.md "Vocabulary").

    ``ours`` and ``theirs`` map tokens to ids; ``vocab``: number of ids that the target emits; ``draft_head``: rows of
    the draft's head. Raises ModelUnavailable with the first differing id and both tokens.
    """
    found = differences(ours, theirs, min(vocab, draft_head))
    if found:
        raise ModelUnavailable(
            f"{target} and {draft} have different vocabularies: id {found[0].id} is {found[0].target!r} in the target "
            f"and {found[0].draft!r} in the draft. Choose a draft with the target's tokenizer."
        )
    if draft_head < vocab:
        raise ModelUnavailable(
            f"The draft {draft} knows only ids below {draft_head}, but {target} can emit ids up to {vocab - 1}, "
            "which the draft could not read. Choose a draft with the target's vocabulary."
        )
