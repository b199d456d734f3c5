"""What a model folder holds is what is hashed, described and loaded; whatever is wrong with a file is a sentence."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import ModelUnavailable
from core.models.load import load_pair
from core.pairs import files, folders
from core.pairs.description import describe
from core.pairs.presets import list_pairs, split
from core.types import PairSpec
from tests.helpers.tiny import save_tiny_model


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny", seed=1)


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def load(folder: Path) -> Any:
    return load_pair(PairSpec(name=str(folder), device="cpu"))


def refused(folder: Path) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        load(folder)
    return str(caught.value)


def reweighted(folder: Path, **changes: torch.Tensor | None) -> None:
    weights = load_file(folder / folders.SINGLE) | changes
    kept = {name: value for name, value in weights.items() if value is not None}
    save_file(kept, folder / folders.SINGLE, metadata={"format": "pt"})


def hub(cache: Path, name: str, contents: dict[str, bytes]) -> None:
    """A snapshot in the hub's cache with these files."""
    commit = "0" * 40
    model = cache / f"models--{name.replace('/', '--')}"
    (model / "snapshots" / commit).mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    for file, content in contents.items():
        (model / "snapshots" / commit / file).write_bytes(content)


# -- what is read -----------------------------------------------------------------------------------------------------


def test_a_single_file_comes_before_the_shards_beside_it_as_in_the_library(tiny: Path) -> None:
    (tiny / folders.INDEX).write_text(
        json.dumps({"weight_map": {"lm_head.weight": "model-00001-of-00009.safetensors"}})
    )
    assert folders.weight_files(tiny) == [tiny / folders.SINGLE]
    assert load(tiny).target.network is not None


def test_of_shards_those_that_the_index_names_are_read(tiny: Path) -> None:
    weights = load_file(tiny / folders.SINGLE)
    (tiny / folders.SINGLE).unlink()
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, own in shards.items():
        save_file({name: weights[name] for name in own}, tiny / shard, metadata={"format": "pt"})
    (tiny / "model-00009-of-00009.safetensors").write_bytes(b"not read")
    where = {name: shard for shard, own in shards.items() for name in own}
    (tiny / folders.INDEX).write_text(json.dumps({"weight_map": where}))
    assert [file.name for file in folders.weight_files(tiny)] == ["a.safetensors", "b.safetensors"]
    assert describe("x", tiny).parameters == sum(value.numel() for value in weights.values())


def test_a_head_of_its_own_under_a_tie_flag_is_counted_as_it_is_loaded(tiny: Path) -> None:
    edit(tiny / "config.json", tie_word_embeddings=True)
    network = load(tiny).target.network
    assert describe("x", tiny).parameters == sum(weight.numel() for weight in network.parameters()) == 37_792


def test_a_head_that_repeats_the_embedding_is_tied_and_counted_once(tiny: Path) -> None:
    edit(tiny / "config.json", tie_word_embeddings=True)
    reweighted(tiny, **{"lm_head.weight": load_file(tiny / folders.SINGLE)["model.embed_tokens.weight"].clone()})
    network = load(tiny).target.network
    assert describe("x", tiny).parameters == sum(weight.numel() for weight in network.parameters()) == 28_192


# -- what is not dropped in silence ---------------------------------------------------------------------------------


def test_fewer_layers_than_the_file_holds_are_told(tiny: Path) -> None:
    edit(tiny / "config.json", num_hidden_layers=1)
    sentence = refused(tiny)
    assert (
        "hold 9 tensors that its config.json has no place for, first model.layers.1.input_layernorm.weight" in sentence
    )


def test_biases_that_the_architecture_has_not_are_told(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "qwen", seed=1, model_type="qwen2")
    edit(folder / "config.json", model_type="llama", architectures=["LlamaForCausalLM"])
    assert "has no place for, first model.layers.0.self_attn.k_proj.bias" in refused(folder)


def test_an_adapter_beside_the_weights_is_told(tiny: Path) -> None:
    (tiny / folders.ADAPTER).write_text("{}")
    assert refused(tiny).endswith("has an adapter beside its weights (adapter_config.json), which is not applied here: "
                                  "merge the two into one model.")  # fmt: skip


def test_an_embedding_with_fewer_rows_than_tokens_is_told(tiny: Path) -> None:
    edit(tiny / "config.json", vocab_size=320)
    assert "says 320 tokens (vocab_size), but its embedding has 300 rows" in refused(tiny)


def test_four_bit_weights_of_another_runtime_are_told(tiny: Path) -> None:
    reweighted(tiny, **{"model.layers.0.mlp.up_proj.weight": torch.zeros(4, 4, dtype=torch.uint8)})
    assert "are packed in a format (U8) that its config.json doesn't name" in refused(tiny)


@pytest.mark.parametrize("value", ["<|im_end|>", [[2]], {"id": 2}, -1, 2.5])
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_end_tokens_that_are_no_ids_are_a_sentence_before_any_weight_is_read(tiny: Path, file: str, value: Any) -> None:
    edit(tiny / file, eos_token_id=value)
    (tiny / folders.SINGLE).write_bytes((tiny / folders.SINGLE).read_bytes())
    assert f"{file}" in refused(tiny)


# -- what is here and what is missing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "lacking"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "has no safetensors weights (other formats are not read"),
        ({"config.json": b"{}", "model.safetensors": b"x"}, "has no tokenizer (tokenizer.json)"),
        (
            {"config.json": b"{}", folders.INDEX: b'{"weight_map": {"a": "b.safetensors"}}'},
            "lacks the weight file b.saf",
        ),
    ],
)
def test_a_hub_model_that_is_partly_here_says_what_it_lacks(empty_cache: Path, contents: Any, lacking: str) -> None:
    name = "Qwen/Qwen3-0.6B"
    hub(empty_cache, name, contents)
    with pytest.raises(ModelUnavailable, match=r"What is here of Qwen/Qwen3-0\.6B"):
        folders.fetch(name)
    assert lacking in (folders.partly(name) or "")
    status = next(one for one in list_pairs() if name in (one.target, one.draft))
    assert f"hat is here of {name} {lacking}"[:60] in status.missing


@pytest.mark.parametrize("tail", ["", "/", "/tree/main", "/blob/main/config.json?x=1"])
def test_the_address_of_a_models_page_is_its_name(tail: str) -> None:
    page = f"https://huggingface.co/Qwen/Qwen3-0.6B{tail}"
    assert split(page) == ("Qwen/Qwen3-0.6B", None)
    assert split(f"{page}+http://hf.co/Qwen/Qwen3-1.7B") == ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B")


# -- malformed files --------------------------------------------------------------------------------------------------


NESTED = "[" * 5000 + "]" * 5000
JSONS = [
    "",
    "null",
    "3",
    '"text"',
    "[]",
    "[1, 2]",
    NESTED,
    '{"a": ' * 3000,
    "\ufeff{}",
    '{"model_type": 7}',
    "{'a': 1}",
]


@pytest.mark.parametrize("text", [
    *JSONS, '{"weight_map": null}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../b"}}',
    '{"weight_map": {"a": "' + "b" * 300 + '"}}', '{"weight_map": [1]}',
])  # fmt: skip
def test_an_index_of_another_form_is_a_sentence(tiny: Path, text: str) -> None:
    (tiny / folders.SINGLE).unlink()
    (tiny / folders.INDEX).write_text(text)
    assert "model.safetensors.index.json" in (folders.lack(tiny) or "")


HEADERS = [
    b"null", b"3", b'"x"', b"[]", b'{"a": null}', b'{"a": {}}', b"{" * 4000,
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
    b'{"a": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
    b'{"a": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}}', b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_another_form_is_a_sentence(tiny: Path, header: bytes) -> None:
    (tiny / folders.SINGLE).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ModelUnavailable, match=r"The weight file model\.safetensors of x is damaged"):
        describe("x", tiny)


@pytest.mark.parametrize("name", ["config.json", folders.SINGLE])
def test_a_pipe_in_a_files_place_is_never_opened(tiny: Path, name: str) -> None:
    (tiny / name).unlink()
    os.mkfifo(tiny / name)
    assert refused(tiny)


def test_a_damaged_generation_configuration_is_told(tiny: Path) -> None:
    (tiny / "generation_config.json").write_text("{")
    assert "has a damaged generation_config.json (no JSON)" in refused(tiny)


def test_files_with_flipped_bytes_load_or_are_a_sentence(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    names = ["config.json", folders.SINGLE, "generation_config.json"]
    sound = {name: (folder / name).read_bytes() for name in names}
    draws = random.Random(5)
    for _ in range(60):
        name = draws.choice(names)
        damaged = bytearray(sound[name])
        for _ in range(draws.randint(1, 3)):
            damaged[draws.randrange(min(len(damaged), 3000))] = draws.randrange(256)
        (folder / name).write_bytes(damaged)
        with contextlib.suppress(ModelUnavailable):
            describe("x", folder)
        with contextlib.suppress(ValueError):
            files.read_json(folder / "generation_config.json", files.GenerationConfig)
        (folder / name).write_bytes(sound[name])
