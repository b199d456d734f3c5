"""Grouped attention against the library's, which repeats the key heads for every query head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from core.cache.rows import Extension
from core.cache.slots import SlotModel
from core.models.attention import FUSED, GROUPED, library_attention
from core.models.compatibility import attention
from core.models.load import load_pair
from core.records import ROOT
from core.types import PairSpec
from tests.helpers.networks import CONFIGS
from tests.helpers.tiny import save_tiny_model

TREE = Extension(0, (1, 2, 3, 4), (ROOT, 0, 0, 2))
GROUPABLE = {name: config for name, config in CONFIGS.items() if not isinstance(config, Gemma2Config)}


def network(config: Any, implementation: str) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


def scored(config: Any, implementation: str) -> list[torch.Tensor]:
    """A prompt, a tree, and two single tokens at once."""
    model = SlotModel(network(config, implementation), vocab=60, slots=2, capacity=64)
    for slot, prompt in enumerate([list(range(5, 25)), [7, 8]]):
        model.open(slot, prompt)
    rows = model.extend([TREE])
    model.keep(0, [0, 2])
    return [*rows, *model.extend([Extension(slot, (9,), (ROOT,)) for slot in (0, 1)])]


@pytest.mark.parametrize("config", GROUPABLE.values(), ids=list(GROUPABLE))
def test_grouped_heads_give_the_logits_of_repeated_ones(config: Any) -> None:
    for ours, theirs in zip(scored(config, GROUPED), scored(config, FUSED), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", GROUPABLE.values(), ids=list(GROUPABLE))
def test_grouped_heads_give_to_the_last_bit_what_the_library_gives_when_told_to_group(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = scored(config, GROUPED)
    monkeypatch.setenv("TRANSFORMERS_SDPA_FORCE_GQA", "1")
    for one, other in zip(ours, scored(config, FUSED), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("config", GROUPABLE.values(), ids=list(GROUPABLE))
def test_a_forward_without_a_cache_is_causal_under_grouped_attention_too(config: Any) -> None:
    ids = torch.arange(12)[None]
    with torch.no_grad():
        ours, theirs = (network(config, name)(input_ids=ids, use_cache=False).logits for name in (GROUPED, FUSED))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_the_library_decides_by_itself_only_where_a_network_is_lent_to_it(tmp_path: Path) -> None:
    one: Any = load_pair(PairSpec(name=str(save_tiny_model(tmp_path / "tiny", seed=1)), device="cpu")).target.network
    assert one.config._attn_implementation == GROUPED
    with library_attention(one):
        assert one.config._attn_implementation == FUSED
        assert one.model.layers[0].self_attn.config._attn_implementation == FUSED
    assert one.config._attn_implementation == GROUPED
    with pytest.raises(ZeroDivisionError), library_attention(one):
        raise ZeroDivisionError
    assert one.config._attn_implementation == GROUPED


def test_gpus_and_models_without_fused_attention_keep_the_librarys() -> None:
    llama = CONFIGS["llama, all layers full"]
    assert attention(llama, on_cpu=True) == GROUPED
    assert attention(llama, on_cpu=False) == FUSED
    assert attention(CONFIGS["gemma2, eager attention"], on_cpu=True) == "eager"
