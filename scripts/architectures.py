"""Every causal architecture of transformers at toy size: equal to the library in every mode, or refused.

``python scripts/architectures.py`` writes docs/architectures.md and exits with 1 if any architecture decodes other
tokens than the library's own greedy generate. Each one is built and tried in a process of its own, with a time limit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TABLE = ROOT / "docs" / "architectures.md"
LIMIT_S = 30.0
PROMPTS = [[5, 9, 4, 5, 9, 4, 5], [7, 3], [8, 6, 8, 6, 8, 6, 8, 6, 8, 6, 8, 6, 8]]
TOKENS = 8
MODES = (("plain", "none"), ("prompt_lookup", "chain:3"), ("prompt_lookup", "s3_k2_d6"), ("early_exit:1", "s3_k2_d6"))

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32, "n_embd": 32, "d_model": 32, "embedding_size": 32, "word_embed_proj_dim": 32, "emb_dim": 32,
    "intermediate_size": 48, "ffn_dim": 48, "n_inner": 48, "d_ff": 48, "ffn_hidden_size": 48,
    "moe_intermediate_size": 16,
    "expert_ffn_hidden_size": 16, "shared_expert_intermediate_size": 16, "shared_intermediate_size": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "decoder_attention_heads": 4,
    "head_dim": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "qk_head_dim": 16, "rotary_dim": 8,
    "q_lora_rank": 16, "kv_lora_rank": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "num_experts_per_token": 2, "moe_topk": 2, "moe_k": 2, "top_k_experts": 2, "n_shared_experts": 1,
    "zero_expert_num": 2,
    "n_group": 1, "topk_group": 1, "num_expert_group": 1, "first_k_dense_replace": 1,
    "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128, "sliding_window": 6, "window_size": 24,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Sizes by the names that configurations give them; a configuration is asked only for the names that it has."""


MISSING = {
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4, "topk_method": "greedy"},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "ministral": {"head_dim": 8, "num_key_value_heads": 2},
    "nemotron": {"num_key_value_heads": 4},
    "dots1": {"n_routed_experts": 4},
    "gemma4_text": {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "global_head_dim": 8},
}
"""What a class's defaults leave open or give in full size, by architecture."""


@dataclass(frozen=True)
class Outcome:
    """``kind``: equal, refused, differs, not built or too slow; ``text``: modes, sentence or reason."""

    kind: str
    text: str


def toy(config_class: Any) -> Any:
    """The class's default configuration at toy size."""
    made = config_class()
    text = made.get_text_config(decoder=True)
    fields = text.to_dict()
    values: dict[str, Any] = {name: value for name, value in SMALL.items() if isinstance(fields.get(name), int)}
    for name in ("num_key_value_heads", "num_kv_heads"):
        if isinstance(fields.get(name), int):
            values[name] = 4 if fields[name] == fields.get("num_attention_heads") else 2
    if isinstance(fields.get("layer_types"), list):
        values["layer_types"] = list(dict.fromkeys(fields["layer_types"]))[:2] * 2
        values["layer_types"] = values["layer_types"][:2]
    for name in ("mlp_layer_types", "no_rope_layers"):
        if isinstance(fields.get(name), list):
            values[name] = fields[name][:2]
    if isinstance(fields.get("attention_types"), list):
        values["attention_types"] = [[["global", "local"], 1]]
    return type(text)(**values | MISSING.get(text.model_type, {}))


def tried(kind: str) -> Outcome:
    """What becomes of one architecture."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from core.errors import SpecLensError
    from core.models.compatibility import attention, refusal, text_config
    from core.models.pair import LoadedModel
    from core.models.probe import prove

    try:
        reason = refusal(CONFIG_MAPPING[kind]())
    except Exception as error:
        return Outcome("not built", said(error))
    if reason is not None:
        return Outcome("refused", f"The model {kind} {reason}")
    try:
        config = toy(CONFIG_MAPPING[kind])
        torch.manual_seed(1)
        network = AutoModelForCausalLM.from_config(config, attn_implementation=attention(config, on_cpu=True)).eval()
        for name, weight in network.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(weight, std=0.3)
    except Exception as error:
        return Outcome("not built", said(error))
    text = text_config(config)
    reason = refusal(config)
    if reason is not None:
        return Outcome("refused", f"The model {kind} {reason}")
    context = getattr(text, "max_position_embeddings", None) or 128
    try:
        proof = prove(LoadedModel(kind, "c", network, context, text.vocab_size), text.vocab_size, "float32")
    except SpecLensError as error:
        return Outcome("refused", str(error))
    return compared(network, min(context, proof.context or context))


def compared(network: Any, context: int) -> Outcome:
    """The network's own greedy generate against every mode, alone and in one batch."""
    import torch

    from core.errors import SpecLensError
    from tests.helpers.decoding import ask, decode_all
    from tests.helpers.networks import real_pair

    whole = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        try:
            out = network.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False,
                eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        except Exception as error:
            return Outcome("not built", f"the library's own generate fails ({said(error)})")
        whole.append(out[0, len(prompt) :].tolist())
    pair = real_pair(network, context=context)
    vocab = network.config.get_text_config(decoder=True).vocab_size
    pair.text.vocabulary = [f"<{n}>" for n in range(vocab)]
    pair.vocab = vocab
    equal, cut = [], ""
    for drafter, shape in MODES:
        requests = [
            ask(f"p{n}", "none" if drafter == "plain" else drafter, shape, max_new_tokens=TOKENS) for n in range(3)
        ]
        pair.text.encode = lambda request: list(PROMPTS[int(request.prompt[1:])])
        try:
            runs = decode_all(requests, pair)
        except SpecLensError as error:
            cut = f"; {drafter}: {error}"
            continue
        name = f"{drafter.split(':')[0].replace('_', ' ')}{'' if shape == 'none' else ' ' + shape}"
        if [one.tokens for one in runs] != whole:
            return Outcome("differs", f"{name}: {[one.tokens for one in runs]} against {whole}")
        equal.append(name)
    kept = "" if context >= 128 else f"; decodes within {context} tokens"
    return Outcome("equal", ", ".join(equal) + kept + cut)


def said(error: Exception) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:140]}"


def _child(kind: str, pipe: Connection) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        pipe.send(tried(kind))
    except BaseException as error:
        pipe.send(Outcome("differs", said(error) if isinstance(error, Exception) else repr(error)))


def outcome(kind: str) -> Outcome:
    """:func:`tried`, in a process of its own."""
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(kind, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(LIMIT_S) else Outcome("too slow", f"no result in {LIMIT_S:.0f} s")
    except EOFError:
        return Outcome("not built", "its process died")
    finally:
        child.kill()
        child.join()


def table(found: dict[str, Outcome]) -> str:
    """The page."""
    from importlib.metadata import version

    counted = {kind: sum(one.kind == kind for one in found.values()) for kind in ("equal", "refused", "differs")}
    rest = len(found) - sum(counted.values())
    lines = [
        "# Architectures",
        "",
        f"Every causal architecture of transformers {version('transformers')} ({len(found)}), built at toy size with",
        "random weights, by `python scripts/architectures.py`. *Equal*: a ragged batch of three prompts gives, in each",
        "mode named, the tokens that the library's own greedy `generate` gives for each prompt alone. *Refused*: with",
        "this sentence, by the configuration or by the comparison at the first load (`core/models/probe.py`).",
        "*Not built*: the class's defaults make no toy; a real model is compared at its first load all the same.",
        "",
        " · ".join([*(f"{kind}: {count}" for kind, count in counted.items()), f"not built or too slow: {rest}"]),
        "",
        "| architecture | result | |",
        "|---|---|---|",
    ]
    lines += [f"| {kind} | {one.kind} | {one.text.replace('|', '/')} |" for kind, one in found.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try every architecture, or those named; write the page only for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help="architectures to try; default: all, into docs/architectures.md")
    chosen = parser.parse_args().kinds
    warnings.simplefilter("ignore")
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    import core.models.load
    import tests.helpers.decoding

    assert core.models.load and tests.helpers.decoding  # imported before forking, for speed
    transformers.logging.set_verbosity_error()
    found = {}
    for kind in chosen or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found[kind] = outcome(kind)
        print(f"{kind}: {found[kind].kind}: {found[kind].text}", flush=True)
    if not chosen:
        TABLE.write_text(table(found), encoding="utf-8")
    return int(any(one.kind == "differs" for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
