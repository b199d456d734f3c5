"""Admission by proof: what equals the library's forward is admitted, what differs is refused or kept to a border."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    Gemma3Config,
    GPTNeoConfig,
    LlamaConfig,
    LongcatFlashConfig,
    MixtralConfig,
    Phi3Config,
    RoCBertConfig,
    XLMConfig,
)

from core.errors import BadInput, ModelUnavailable
from core.models import probe
from core.models.compatibility import attention, refusal, text_config
from core.models.pair import LoadedModel
from core.models.probe import prove, proven
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.fakes import LETTERS
from tests.helpers.networks import CONFIGS, PROMPTS, SIZES, real_pair

HEADS = SIZES | {"num_key_value_heads": 4}
ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
}
LONGROPE = Phi3Config(
    **SIZES,
    pad_token_id=0,
    rope_parameters={
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64,
    },
    original_max_position_embeddings=64,
)
WINDOWED = GPTNeoConfig(
    vocab_size=60,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    attention_types=[[["global", "local"], 1]],
    window_size=24,
    max_position_embeddings=96,
)
MULTIMODAL = Gemma3Config(
    text_config=SIZES | {"head_dim": 8, "sliding_window": 5},
    vision_config={
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
)
EQUAL = CONFIGS | {
    "latent attention (MLA) of DeepSeek V2": DeepseekV2Config(**HEADS, **EXPERTS, topk_method="greedy"),
    "latent attention (MLA) of DeepSeek V3": DeepseekV3Config(**HEADS, **EXPERTS),
    "experts": MixtralConfig(**SIZES, num_local_experts=4),
    "yarn": LlamaConfig(**SIZES, rope_parameters=ROPE | {"rope_type": "yarn"}),
    "llama 3's scaling": LlamaConfig(
        **SIZES, rope_parameters=ROPE | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    ),
    "linear scaling": LlamaConfig(
        **SIZES, rope_parameters={"rope_theta": 10_000.0, "rope_type": "linear", "factor": 4.0}
    ),
    "dynamic scaling, whose context is the length before it scales": LlamaConfig(
        **SIZES, rope_parameters={"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 4.0}
    ),
    "multimodal Gemma 3, whose text configuration is nested": MULTIMODAL,
}


def loaded(config: Any, content: str = "c") -> LoadedModel:
    """A random model of this configuration as the loader gives it to the probe."""
    torch.manual_seed(1)
    network = AutoModelForCausalLM.from_config(config, attn_implementation=attention(config, on_cpu=True)).eval()
    for name, weight in network.named_parameters():
        if weight.dim() > 1 and "norm" not in name:
            torch.nn.init.normal_(weight, std=0.3)  # spreads attention, so that a wrong row or position shows
    text = text_config(config)
    return LoadedModel("M", content, network, text.max_position_embeddings, text.vocab_size)


# -- admitted -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUAL)
def test_a_model_whose_slots_equal_the_librarys_forward_is_admitted_whole(name: str) -> None:
    proof = prove(loaded(EQUAL[name]), 60, "float32")
    assert proof.context is None
    assert proof.worst < 1e-4


@pytest.mark.parametrize(
    "name",
    [
        "latent attention (MLA) of DeepSeek V3",
        "experts",
        "llama 3's scaling",
        "multimodal Gemma 3, whose text configuration is nested",
    ],
)
def test_admitted_models_decode_what_the_librarys_generate_decodes(name: str) -> None:
    equals_generate(loaded(EQUAL[name]).network)


def equals_generate(network: Any, prompts: list[str] = PROMPTS) -> None:
    """Batched trees give the tokens that the library's own greedy generate gives alone."""
    pair = real_pair(network)
    batch = decode_all([ask(prompt, "prompt_lookup", "s3_k2_d6", max_new_tokens=8) for prompt in prompts], pair)
    for prompt, one in zip(prompts, batch, strict=True):
        ids = torch.tensor([pair.text.encode(ask(prompt))])
        with torch.no_grad():
            whole = network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=8,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                logits_processor=[only_letters],
            )
        assert one.tokens == whole[0, ids.shape[1] :].tolist()


def only_letters(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Restrict the library's generate to the ids that the fake codec can emit."""
    return scores.index_fill(1, torch.arange(len(LETTERS), scores.shape[1]), -torch.inf)


# -- kept to a border -----------------------------------------------------------------------------------------------


def test_rotary_factors_that_switch_with_the_longest_request_keep_a_model_below_the_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("core.cache.slots.by_row", lambda network: (network, []))
    assert prove(loaded(LONGROPE), 60, "float32").context == 64


def test_rotary_factors_chosen_for_each_row_are_admitted_past_the_switch() -> None:
    assert prove(loaded(LONGROPE), 60, "float32").context is None


def test_a_short_request_is_right_in_the_company_of_one_past_the_switch() -> None:
    equals_generate(loaded(LONGROPE).network, ["ab", "abcab" * 14])


def test_a_window_of_another_name_that_counts_row_numbers_is_refused_one_step_past_it() -> None:
    assert refused(loaded(WINDOWED)).startswith("M can't decode here: one step past its window of 24 tokens its logits")


def test_a_border_too_far_to_be_stepped_over_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LONGEST", 16)
    monkeypatch.setattr(probe, "CANDIDATES", 8)
    config = LlamaConfig(**SIZES)
    config.memory_window = 32
    assert prove(loaded(config), 60, "float32").context == 24


def test_the_window_is_as_it_was_after_the_probe() -> None:
    model = loaded(CONFIGS["mistral, all layers sliding"])
    prove(model, 60, "float32")
    assert model.network.config.sliding_window == 4


# -- refused --------------------------------------------------------------------------------------------------------


def refused(model: LoadedModel) -> str:
    """The sentence with which the probe refuses a model."""
    with pytest.raises(ModelUnavailable) as caught:
        prove(model, 60, "float32")
    return str(caught.value)


def test_row_numbers_taken_for_positions_are_refused_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(CONFIGS["llama, all layers full"])
    rotary = model.network.model.rotary_emb
    original = rotary.forward

    def by_row(states: Any, position_ids: torch.Tensor) -> Any:
        return original(states, torch.arange(position_ids.shape[1])[None].expand_as(position_ids))

    monkeypatch.setattr(rotary, "forward", by_row)
    sentence = refused(model)
    assert sentence.startswith(
        "M can't decode here: its logits over cache slots differ from the library's own forward by"
    )
    assert float(sentence.split(" by ")[1].split()[0]) > 0.1


def test_positions_of_the_longest_request_given_to_all_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(CONFIGS["llama, all layers full"])
    rotary = model.network.model.rotary_emb
    original = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda states, position_ids: original(states, position_ids[-1:]))
    assert "differ from the library's own forward" in refused(model)


def test_a_window_that_only_the_attention_knows_is_refused_one_step_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(CONFIGS["mistral, all layers sliding"])
    monkeypatch.setattr("core.cache.kv.Pass.mask", lambda self, window: self.visible[:, None])
    assert "differ" in refused(model)


@pytest.mark.parametrize(
    "kind",
    [
        "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert",
        "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl", "xmod",
    ],
)  # fmt: skip
def test_encoders_are_refused_before_a_weight_is_read_unless_they_are_decoders(kind: str) -> None:
    assert "doesn't generate text token by token" in (refusal(AutoConfig.for_model(kind)) or "")
    assert "doesn't generate text" not in (refusal(AutoConfig.for_model(kind, is_decoder=True)) or "")


@pytest.mark.parametrize(
    "config",
    [
        XLMConfig(vocab_size=60, emb_dim=32, n_layers=2, n_heads=4, n_langs=1, max_position_embeddings=96),
        RoCBertConfig(
            vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=96,
        ),
    ],
)  # fmt: skip
def test_a_model_that_reads_both_ways_is_told_by_its_logits(config: Any) -> None:
    assert refused(loaded(config)) == (
        f"The model M is of a kind ({config.model_type}) that doesn't generate text token by token: choose a "
        "decoder-only model."
    )


def test_a_forward_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(CONFIGS["llama, all layers full"])
    monkeypatch.setattr(
        model.network.model, "forward", lambda **_: (_ for _ in ()).throw(AttributeError("no such row"))
    )
    assert refused(model) == (
        "M can't decode here: its forward over cache slots fails (AttributeError: no such row). Choose another model."
    )


def test_weights_that_give_no_finite_logits_are_refused() -> None:
    model = loaded(CONFIGS["llama, all layers full"])
    with torch.no_grad():
        model.network.model.norm.weight.fill_(torch.nan)
    assert "computes no finite logits for ordinary tokens" in refused(model)


def test_an_exit_of_a_model_that_counts_its_layers_otherwise_is_a_sentence() -> None:
    config = LongcatFlashConfig(
        vocab_size=60, hidden_size=32, ffn_hidden_size=48, expert_ffn_hidden_size=16, num_layers=2,
        num_attention_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
        n_routed_experts=4, zero_expert_num=2, moe_topk=2, max_position_embeddings=96,
    )  # fmt: skip
    pair = real_pair(loaded(config).network)
    with pytest.raises((ModelUnavailable, BadInput), match="keeps its layers in a way early exit can't cut"):
        decode(ask("ab", "early_exit:2", "chain:2"), pair)


def test_a_model_whose_modules_count_on_all_layers_has_no_early_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    network = loaded(CONFIGS["llama, all layers full"]).network
    original = type(network.model).forward

    def whole(self: Any, *given: Any, **options: Any) -> Any:
        if len(self.layers) != 4:
            raise RuntimeError("shape '[1, 5, 1, 256]' is invalid for input of size 2560")
        return original(self, *given, **options)

    monkeypatch.setattr(type(network.model), "forward", whole)
    with pytest.raises(ModelUnavailable, match="doesn't run with some of its layers alone, so early exit can't cut it"):
        decode(ask("ab", "early_exit:2", "chain:2"), real_pair(network))


# -- kept -----------------------------------------------------------------------------------------------------------


def test_a_proof_is_kept_by_content_and_precision_and_made_again_when_torn(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Any
) -> None:
    made: list[str] = []
    original = probe.prove

    def counted(model: LoadedModel, vocab: int, precision: str) -> Any:
        made.append(f"{model.content_hash} {precision}")
        return original(model, vocab, precision)

    monkeypatch.setattr(probe, "prove", counted)
    monkeypatch.setattr("core.cache.slots.by_row", lambda network: (network, []))
    model = loaded(LONGROPE)
    for one, precision in [(model, "float32"), (model, "float32"), (loaded(LONGROPE, "d"), "float32"), (model, "int8")]:
        assert proven(one, 60, precision).context == 64
    assert made == ["c float32", "d float32", "c int8"]
    for file in (empty_cache / "proofs").iterdir():
        file.write_text('{"context":')
    proven(model, 60, "float32")
    assert len(made) == 4


def test_a_refusal_is_found_again_at_the_next_load(empty_cache: Any) -> None:
    model = loaded(CONFIGS["llama, all layers full"])
    with torch.no_grad():
        model.network.model.norm.weight.fill_(torch.nan)
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            proven(model, 60, "float32")
    assert not (empty_cache / "proofs").exists()
