"""Loading pairs from folders and a hub cache made here: what loads, what is refused, and with which sentence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.errors import BadInput, ModelUnavailable
from core.models.compatibility import check_vocabularies, refusal
from core.models.load import load_pair
from core.models.pair import Pair
from core.pairs import folders
from core.pairs.presets import PRESETS, default_drafter, list_pairs, split
from core.types import EarlyExitDrafter, PairSpec, PromptLookupDrafter, SmallModelDrafter
from tests.helpers.tiny import byte_fallback_tokenizer, save_tiny_model

pytestmark = pytest.mark.usefixtures("empty_cache")


def load(*names: object, **options: Any) -> Pair:
    """The pair of these models on the CPU."""
    return load_pair(PairSpec(name="+".join(map(str, names)), device="cpu", **options))


def refused(*names: object, **options: Any) -> str:
    """The sentence with which the pair is refused."""
    with pytest.raises(ModelUnavailable) as caught:
        load(*names, **options)
    return str(caught.value)


def edit(file: Path, **values: Any) -> None:
    """Change keys of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


# -- what loads -----------------------------------------------------------------------------------------------------


def test_a_folder_loads_as_a_target_without_a_draft(tiny: Path) -> None:
    pair = load(tiny)
    assert pair.draft is None
    assert (pair.name, pair.target.name) == (str(tiny), str(tiny))
    assert (pair.vocab, pair.target.vocab, pair.target.context) == (300, 300, 512)
    assert (pair.precision, pair.dtype, pair.device) == ("float32", torch.float32, torch.device("cpu"))
    assert pair.text.eos == {2}
    assert not pair.target.network.training
    assert not any(weight.requires_grad for weight in pair.target.network.parameters())


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral", "gemma", "gpt2"])
def test_each_kind_of_attention_loads_and_scores_as_it_was_saved(tmp_path: Path, model_type: Any) -> None:
    folder = save_tiny_model(tmp_path / model_type, seed=3, model_type=model_type)
    network = load(folder).target.network
    ids = torch.arange(10, 40)[None]
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()(ids).logits
        assert torch.allclose(network(ids).logits, expected, atol=1e-5)


def test_target_and_draft_with_padded_heads_of_different_width_share_the_tokenizers_ids(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target", seed=1, head=320)
    draft = save_tiny_model(tmp_path / "draft", seed=2, head=304, layers=1)
    pair = load(target, draft)
    assert pair.draft is not None
    assert (pair.vocab, pair.target.vocab, pair.draft.vocab) == (300, 320, 304)
    assert pair.target.content_hash != pair.draft.content_hash


def test_a_head_narrower_than_its_tokenizer_limits_the_ids(tmp_path: Path) -> None:
    pair = load(save_tiny_model(tmp_path / "narrow", seed=1, head=290, vocab=300))
    assert (pair.vocab, pair.text.vocab) == (290, 290)


def test_sharded_weights_load_as_one_model(tiny: Path, tmp_path: Path) -> None:
    whole = load(tiny).target.network
    whole.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / name, tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    ids = torch.arange(10, 20)[None]
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "shards").target.network(ids).logits, whole(ids).logits)


@pytest.mark.parametrize(("precision", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_a_chosen_precision_is_used_and_named(tiny: Path, precision: Any, dtype: torch.dtype) -> None:
    pair = load(tiny, precision=precision)
    assert (pair.precision, pair.dtype) == (precision, dtype)
    assert {weight.dtype for weight in pair.target.network.parameters()} == {dtype}


def test_all_end_tokens_of_the_generation_configuration_end_a_run(tiny: Path) -> None:
    edit(tiny / "generation_config.json", eos_token_id=[0, 7])
    assert load(tiny).text.eos == {0, 2, 7}


def test_progress_rises_from_zero_to_one(tmp_path: Path) -> None:
    target, draft = (save_tiny_model(tmp_path / name, seed=1) for name in ("target", "draft"))
    shares: list[float] = []
    load_pair(PairSpec(name=f"{target}+{draft}"), lambda message, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[0] >= 0.0
    assert shares[-1] == 1.0


def test_a_plus_in_a_folders_name_belongs_to_the_folder(tmp_path: Path) -> None:
    c_plus_plus = save_tiny_model(tmp_path / "c++", seed=1)
    assert load(c_plus_plus).target.name == str(c_plus_plus)
    pair = load(c_plus_plus, c_plus_plus)
    assert pair.draft is not None
    assert pair.draft.name == str(c_plus_plus)


def test_a_model_in_the_hub_cache_loads_by_its_name_without_a_network(tiny: Path, empty_cache: Path) -> None:
    repository = empty_cache / "hub" / "models--someone--tiny"
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(tiny, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    pair = load("someone/tiny")
    assert pair.target.name == "someone/tiny"
    assert pair.target.content_hash == load(tiny).target.content_hash


# -- names and devices ----------------------------------------------------------------------------------------------


def test_an_absent_hub_model_is_refused_in_a_sentence_when_downloads_are_forbidden() -> None:
    assert refused("Qwen/Qwen3-0.6B") == (
        "The model Qwen/Qwen3-0.6B is not on this machine and HF_HUB_OFFLINE forbids downloading: "
        "give a local folder or unset it."
    )
    assert refused("qwen3-8b").startswith("The model Qwen/Qwen3-8B is not on this machine")


def test_a_hub_that_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert refused("Qwen/Qwen3-0.6B") == (
        "The model Qwen/Qwen3-0.6B is not on this machine and the model hub can't be reached: "
        "connect to the network once, or give a local folder."
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("GatedRepoError", "accept its licence on the model's page, then log in with `hf auth login`."),
        ("RepositoryNotFoundError", "the hub knows no such model: check the name's spelling."),
    ],
)
def test_a_hub_that_refuses_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: str, sentence: str) -> None:
    from huggingface_hub import errors

    response = httpx2.Response(403, request=httpx2.Request("GET", "http://127.0.0.1"))

    def download(name: str, local_files_only: bool = False, **options: Any) -> str:
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not here")
        raise getattr(errors, error)("no", response=response)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert refused("meta-llama/Llama-3.1-8B-Instruct").endswith(sentence)


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == f"The model folder {tmp_path / 'none'} is not a folder on this machine."


def test_a_name_that_is_no_model_name_is_a_sentence() -> None:
    assert refused("what is this?") == "'what is this?' is neither a folder nor a model name such as Qwen/Qwen3-0.6B."


@pytest.mark.parametrize(("name", "side"), [("+draft", "target"), ("target+", "draft"), ("+", "target")])
def test_a_pair_without_one_of_its_sides_is_bad_input(name: str, side: str) -> None:
    with pytest.raises(BadInput, match=f"names no {side}: write embedded, a preset"):
        load_pair(PairSpec(name=name))


def test_a_pair_of_several_plus_signs_is_bad_input() -> None:
    with pytest.raises(BadInput, match="has 2 plus signs"):
        load_pair(PairSpec(name="a+b+c"))


def test_cuda_on_a_machine_without_it_is_a_sentence(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelUnavailable, match="This machine has no CUDA device that PyTorch can use"):
        load_pair(PairSpec(name=str(tiny), device="cuda"))


# -- damaged and unsafe folders -------------------------------------------------------------------------------------


def test_weights_that_are_not_safetensors_are_not_read(tiny: Path) -> None:
    (tiny / "model.safetensors").rename(tiny / "pytorch_model.bin")
    assert refused(tiny).endswith("has no safetensors weights (other formats are not read, as they may run code).")


def test_a_folder_without_weights_configuration_or_tokenizer_names_what_it_lacks(tiny: Path) -> None:
    (tiny / "tokenizer.json").unlink()
    assert refused(tiny) == f"The model folder {tiny} has no tokenizer (tokenizer.json)."
    (tiny / "model.safetensors").unlink()
    assert refused(tiny) == f"The model folder {tiny} has no weights (model.safetensors)."
    (tiny / "config.json").unlink()
    assert refused(tiny) == f"The model folder {tiny} has no config.json."


def test_a_missing_shard_is_named(tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (tiny / folders.INDEX).write_text(json.dumps(index))
    assert refused(tiny).endswith("lacks the weight file model-00001-of-00002.safetensors.")
    (tiny / folders.INDEX).write_text("{")
    assert refused(tiny).endswith("has a damaged model.safetensors.index.json (no JSON).")


def test_truncated_weights_are_a_sentence(tiny: Path) -> None:
    data = (tiny / "model.safetensors").read_bytes()
    (tiny / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert "The weight file model.safetensors of" in refused(tiny)
    assert "is damaged" in refused(tiny)


def test_weights_of_fewer_layers_than_the_configuration_names_are_incomplete_not_random(tiny: Path) -> None:
    edit(tiny / "config.json", num_hidden_layers=3)
    assert "are incomplete: 9 tensors are missing, first model.layers.2." in refused(tiny)


def test_weights_of_another_width_are_a_sentence(tiny: Path) -> None:
    edit(tiny / "config.json", intermediate_size=48)
    assert refused(tiny).startswith(f"The weights of {tiny} have other shapes than its config.json says")


def test_a_models_own_code_never_runs(tiny: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it ran"
    (tiny / "modeling_evil.py").write_text(f"open({str(marker)!r}, 'w')\nEvilConfig = EvilModel = None\n")
    own = {"AutoConfig": "modeling_evil.EvilConfig", "AutoModelForCausalLM": "modeling_evil.EvilModel"}
    edit(tiny / "config.json", auto_map=own, model_type="evil")
    assert "needs code of its own to run, which is never executed here" in refused(tiny)
    edit(tiny / "config.json", model_type="llama")
    assert load(tiny).target.network.config.model_type == "llama"
    assert not marker.exists()


def test_an_unknown_architecture_is_a_sentence(tiny: Path) -> None:
    edit(tiny / "config.json", model_type="tomorrow")
    assert "can't be used (" in refused(tiny)
    assert "tomorrow" in refused(tiny)


def test_a_damaged_tokenizer_is_a_sentence(tiny: Path) -> None:
    (tiny / "tokenizer.json").write_text("{}")
    assert refused(tiny).startswith(f"The tokenizer of {tiny} can't be used (")


# -- refused by configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("mamba", "keeps layers of the kinds linear_attention"),
        ("rwkv", "keeps recurrent state"),
        ("jamba", "keeps layers of the kinds linear_attention"),
        ("qwen3_next", "keeps layers of the kinds linear_attention"),
        ("deepseek_v4", "keeps layers of the kinds compressed_sparse_attention, heavily_compressed_attention"),
        ("llama4", "keeps layers of the kinds chunked_attention"),
        ("gemma3n", "shares cache rows between layers"),
        ("t5", "is an encoder-decoder"),
        ("bert", "doesn't generate text token by token"),
        ("vit", "doesn't generate text token by token"),
        ("bloom", "takes no explicit positions"),
        ("openai-gpt", "has no key/value cache"),
    ],
)
def test_a_model_that_cannot_be_rolled_back_is_refused_with_its_kind_and_reason(kind: str, reason: str) -> None:
    sentence = refusal(AutoConfig.for_model(kind))
    assert sentence is not None
    assert f"({kind})" in sentence
    assert reason in sentence


@pytest.mark.parametrize(
    "kind", ["llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "gpt2", "phi3", "mixtral"]
)
def test_models_of_full_and_sliding_attention_are_accepted(kind: str) -> None:
    assert refusal(AutoConfig.for_model(kind)) is None


def test_positions_that_come_from_the_mask_alone_are_refused() -> None:
    assert "takes no explicit positions" in (refusal(AutoConfig.for_model("falcon", alibi=True)) or "")


def test_a_refused_model_is_refused_before_its_weights_are_read(tiny: Path) -> None:
    (tiny / "model.safetensors").write_bytes(b"not weights at all")
    (tiny / "config.json").write_text(json.dumps(AutoConfig.for_model("mamba", num_hidden_layers=2).to_dict()))
    assert refused(tiny) == (
        f"The model {tiny} (mamba) keeps layers of the kinds linear_attention: recurrent, compressed or chunked state "
        "can't be cut back after a rejection. Choose a model with full or sliding-window attention in every layer."
    )


# -- vocabularies ---------------------------------------------------------------------------------------------------


def test_different_tokenizers_are_refused_with_the_first_differing_id_and_both_tokens(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target", seed=1)
    draft = save_tiny_model(tmp_path / "draft", seed=1, tokenizer=byte_fallback_tokenizer())
    assert refused(target, draft) == (
        f"{target} and {draft} have different vocabularies: id 3 is '!' in the target and '<unk>' in the draft. "
        "Choose a draft with the target's tokenizer."
    )


def test_ids_that_only_one_of_the_tokenizers_has_do_not_differ() -> None:
    check_vocabularies("p", {"a": 0, "b": 1, "only p": 3}, "q", {"a": 0, "b": 1, "only q": 2}, vocab=4, draft_head=4)


def test_ids_beyond_a_head_cannot_be_emitted_and_do_not_differ() -> None:
    check_vocabularies("p", {"a": 0, "b": 1}, "q", {"a": 0, "other": 1}, vocab=1, draft_head=2)


def test_a_draft_that_cannot_read_every_id_of_the_target_is_refused(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target", seed=1)
    draft = save_tiny_model(tmp_path / "draft", seed=1, head=290, vocab=300)
    assert refused(target, draft) == (
        f"The draft {draft} knows only ids below 290, but {target} can emit ids up to 299, which the draft could not "
        "read. Choose a draft with the target's vocabulary."
    )


# -- memory ---------------------------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_are_refused_before_they_are_read(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "core.pairs.memory.psutil.virtual_memory", lambda: SimpleNamespace(total=200_000, available=100_000)
    )
    numbers = sum(weight.numel() for weight in AutoModelForCausalLM.from_pretrained(tiny).parameters())
    assert 100_000 / 4 < numbers < 100_000 / 2  # fits in 2 bytes a number, not in 4
    assert refused(tiny) == (
        f"The weights of {tiny} need {numbers * 4 / 1e9:.1f} GB in float32, but 0.0 GB of memory are free: "
        "choose a smaller pair or a shorter precision."
    )
    assert load(tiny, precision="bfloat16").precision == "bfloat16"


def test_running_out_of_memory_while_loading_is_a_sentence(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", exhausted)
    assert refused(tiny) == (
        f"Memory of the CPU ran out while loading {tiny}: choose a smaller pair or a shorter precision, "
        "or free the device."
    )


# -- content hashes -------------------------------------------------------------------------------------------------


def test_the_content_hash_is_that_of_the_content_not_of_the_place(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "copy")
    assert folders.content_hash(tmp_path / "copy") == folders.content_hash(tiny)
    assert folders.content_hash(save_tiny_model(tmp_path / "other", seed=2)) != folders.content_hash(tiny)


def test_a_changed_configuration_changes_the_content_hash(tiny: Path) -> None:
    before = folders.content_hash(tiny)
    edit(tiny / "config.json", rms_norm_eps=1e-3)
    assert folders.content_hash(tiny) != before


def test_the_second_load_reads_no_bytes_for_the_hash_until_a_file_changes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = folders.file_hash
    monkeypatch.setattr(folders, "file_hash", lambda file: read.append(file.name) or real(file))
    first = load(tiny).target.content_hash
    assert sorted(read) == ["config.json", "model.safetensors"]
    assert load(tiny).target.content_hash == first
    assert len(read) == 2
    weights = bytearray((tiny / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tiny / "model.safetensors").write_bytes(weights)
    os.utime(tiny / "model.safetensors", ns=(1, 1))
    assert load(tiny).target.content_hash != first
    assert len(read) == 3


# -- presets --------------------------------------------------------------------------------------------------------


def test_the_presets_are_those_the_specification_names() -> None:
    assert {name: (preset.target, preset.draft) for name, preset in PRESETS.items()} == {
        "embedded": ("SmolLM2-135M-Instruct", None),
        "qwen2.5-7b": ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        "qwen3-8b": ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"),
        "llama-3.1-8b": ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
        "smollm2-1.7b": ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        "layerskip-1b": ("facebook/layerskip-llama3.2-1B", None),
    }


def test_each_pair_has_a_default_drafter_that_fits_it() -> None:
    assert default_drafter("embedded") == PromptLookupDrafter()
    assert default_drafter("qwen3-8b") == SmallModelDrafter()
    assert default_drafter("layerskip-1b") == EarlyExitDrafter(layers=4)
    assert default_drafter("some/target+some/draft") == SmallModelDrafter()
    assert default_drafter("some/target") == PromptLookupDrafter()


def test_a_name_splits_into_target_and_draft() -> None:
    assert split("embedded") == ("embedded", None)
    assert split("qwen3-8b") == ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B")
    assert split(" a/b + c/d ") == ("a/b", "c/d")
    assert split("HuggingFaceTB/SmolLM2-1.7B-Instruct+embedded") == ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "embedded")


def test_the_list_of_pairs_names_what_each_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.pairs.embedded.missing", lambda: "")
    rows = {row.name: row for row in list_pairs()}
    assert list(rows) == list(PRESETS)
    assert (rows["embedded"].available, rows["embedded"].missing) == (True, "")
    assert not rows["qwen3-8b"].available
    assert rows["qwen3-8b"].missing == (
        "Qwen/Qwen3-8B and Qwen/Qwen3-0.6B are not on this machine: downloaded at the first run when the "
        "network allows (17.9 GB for the pair)."
    )
