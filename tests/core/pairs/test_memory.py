"""Memory: what is said to be needed against what loading really allocates, and what devices say they have free."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from core.cache.slots import SlotModel, SlotTarget
from core.cache.target import Candidates
from core.errors import ModelUnavailable
from core.models.load import load_pair
from core.pairs import memory
from core.pairs.description import Description, describe, read_weights
from core.pairs.memory import DeviceMemory, Need, fit, need
from core.records import ROOT
from core.types import PairSpec, Precision
from tests.helpers.tiny import save_tiny_model, tiny_config


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that loading remembers lie in a folder of the test's own."""
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))


def allocated(tensors: list[Tensor]) -> int:
    """Bytes of the memory behind these tensors, shared memory once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


# -- against what is allocated --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mistral", "gemma", "gpt2"])
@pytest.mark.parametrize("tie", [False, True])
def test_weights_and_cache_are_what_loading_and_a_slot_allocate(tmp_path: Path, model_type: Any, tie: bool) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1, model_type=model_type, tie=tie)
    said = describe("tiny", folder)
    network = load_pair(PairSpec(name=str(folder), device="cpu")).target.network
    assert memory.weight_bytes(said, "float32") == allocated(list(network.parameters()))
    slot = SlotModel(network, 300, slots=1, capacity=50)
    slot.open(0, [5, 6, 7])
    rows = [rows for layer in slot.cache.rows for rows in (layer.keys, layer.values) if rows is not None]
    assert memory.cache_bytes(said, "float32", rows=50) == allocated(rows)


@pytest.mark.parametrize("slots", [1, 3])
def test_what_slots_allocate_is_computed_from_the_configuration_and_stays_so_while_they_fill(
    tmp_path: Path, slots: int
) -> None:
    config = tiny_config()
    network = AutoModelForCausalLM.from_config(config).eval()
    (tmp_path / "config.json").write_text(config.to_json_string())
    computed = memory.cache_bytes(describe("tiny", tmp_path), "float32", rows=60)
    assert computed is not None
    model = SlotTarget(network, 300, slots, capacity=60)
    for slot in range(slots):
        model.open(slot, [5, 6, 7])
    for _ in range(10):
        rows = [rows for layer in model.cache.rows for rows in (layer.keys, layer.values) if rows is not None]
        assert allocated(rows) == slots * computed
        model.score([Candidates(slot, 4, (8, 9, 10), (ROOT, ROOT, 1)) for slot in range(slots)])
        for slot in range(slots):
            model.keep(slot, [1, 2])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_the_need_of_a_pair_is_both_models_weights_and_both_slots(tmp_path: Path, precision: Precision) -> None:
    folders = [save_tiny_model(tmp_path / name, seed=1, layers=n) for n, name in enumerate(("draft", "target"), 1)]
    draft, target = folders
    needed = need([describe("target", target), describe("draft", draft)], precision, rows=40)
    pair = load_pair(PairSpec(name=f"{target}+{draft}", precision=precision, device="cpu"))
    assert pair.draft is not None
    networks = [pair.target.network, pair.draft.network]
    assert needed.weights == allocated([weight for network in networks for weight in network.parameters()])
    slots = [SlotModel(network, 300, slots=1, capacity=40) for network in networks]
    for slot in slots:
        slot.open(0, [5, 6, 7])
    held = [r for s in slots for layer in s.cache.rows for r in (layer.keys, layer.values) if r is not None]
    assert needed.cache == allocated(held)
    assert needed.total == (needed.weights or 0) + allocated(held)


def test_latent_attention_caches_one_latent_and_one_rotary_row(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "deepseek_v3", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        q_lora_rank=16, kv_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=10, intermediate_size=32,
        moe_intermediate_size=8, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2,
        first_k_dense_replace=1, vocab_size=64, max_position_embeddings=128,
    )  # fmt: skip
    network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    slot = SlotModel(network, 64, slots=1, capacity=20)
    slot.open(0, [1, 2, 3])
    network.save_pretrained(tmp_path)
    held = [r for layer in slot.cache.rows for r in (layer.keys, layer.values) if r is not None]
    assert memory.cache_bytes(describe("mla", tmp_path), "float32", rows=20) == allocated(held)


def test_a_tied_head_that_is_stored_beside_its_embedding_counts_once(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tied", seed=1, tie=True)
    before = describe("tied", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    after = describe("tied", folder)
    assert after.parameters == before.parameters
    assert (after.disk_bytes or 0) > (before.disk_bytes or 0)
    network = load_pair(PairSpec(name=str(folder), device="cpu")).target.network
    assert memory.weight_bytes(after, "float32") == allocated(list(network.parameters()))


def test_quantised_weights_take_what_they_are_stored_in_whatever_precision_is_asked(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "packed", seed=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "any"}}))
    said = describe("packed", folder)
    stored = read_weights("packed", folder).tensor_bytes
    assert memory.weight_bytes(said, "float32") == memory.weight_bytes(said, "bfloat16") == stored


# -- descriptions ---------------------------------------------------------------------------------------------------


def test_a_description_has_the_models_shape(tmp_path: Path) -> None:
    said = describe("tiny", save_tiny_model(tmp_path / "tiny", seed=1, head=320, context=700))
    assert (said.kind, said.layers, said.heads, said.kv_heads) == ("llama", 2, 4, 2)
    assert (said.context, said.vocabulary, said.chat_template) == (700, 320, True)
    assert said.cache_numbers == 2 * 2 * 2 * 8
    files = list((tmp_path / "tiny").glob("*.safetensors"))
    assert said.disk_bytes == sum(file.stat().st_size for file in files)


def test_a_model_without_a_chat_template_is_described_so(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    (folder / "chat_template.jinja").unlink()
    assert not describe("tiny", folder).chat_template


def test_what_a_configuration_does_not_say_is_unknown_and_not_guessed(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    config = json.loads((folder / "config.json").read_text())
    for name in ("num_attention_heads", "num_key_value_heads", "head_dim"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    said = describe("tiny", folder)
    assert (said.heads, said.kv_heads, said.cache_numbers) == (None, None, None)
    assert need([said], "float32", 10).cache is None


def test_the_part_that_generates_text_is_described(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "many", "text_config": config}))
    assert describe("tiny", folder).layers == 2


def test_without_weights_the_size_is_what_the_index_promises(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    (folder / "model.safetensors").unlink()
    assert (describe("tiny", folder).parameters, describe("tiny", folder).disk_bytes) == (None, None)
    index = {"metadata": {"total_size": 1234}, "weight_map": {"a": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert describe("tiny", folder).disk_bytes == 1234


@pytest.mark.parametrize(
    "damage", [b"", b"\xff" * 20, b"\x08" + b"\x00" * 7 + b"{}      extra", b"\x02" + b"\x00" * 7 + b"[]"]
)
def test_damaged_weights_are_a_sentence(tmp_path: Path, damage: bytes) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    (folder / "model.safetensors").write_bytes(damage)
    with pytest.raises(ModelUnavailable, match=r"The weight file model\.safetensors of tiny is damaged"):
        describe("tiny", folder)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_configuration_is_a_sentence(tmp_path: Path, text: str) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1)
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelUnavailable, match=r"The model tiny has a damaged config\.json \(.+\): fetch it again\."):
        describe("tiny", folder)


# -- needed against free --------------------------------------------------------------------------------------------

MODEL = Description("m", "llama", 1000, 2000, None, 2, 4, 2, 64, 300, 10, True)


def test_a_slot_is_no_longer_than_the_targets_context() -> None:
    assert need([MODEL], "float32", rows=1000) == Need(weights=4000, cache=10 * 64 * 4, rows=64)
    assert need([replace(MODEL, context=None)], "float16", rows=1000) == Need(2000, 10 * 1000 * 2, 1000)


def test_one_unknown_model_leaves_the_pairs_need_unknown() -> None:
    needed = need([MODEL, replace(MODEL, parameters=None)], "float32", rows=10)
    assert (needed.weights, needed.total) == (None, None)
    assert need([], "float32", rows=10).total is None


@pytest.mark.parametrize(
    ("free", "verdict"), [(110, "fits"), (109, "weights"), (100, "weights"), (99, "nothing"), (None, "unknown")]
)
def test_a_need_fits_or_only_its_weights_do_or_nothing(free: int | None, verdict: str) -> None:
    assert fit(Need(weights=100, cache=10, rows=1), free) == verdict


def test_published_sizes_are_of_bfloat16() -> None:
    assert memory.published_need(1000, "bfloat16").total == 1000
    assert memory.published_need(1000, "float32").total == 2000


def test_the_precision_follows_the_device_unless_chosen() -> None:
    assert (memory.resolve("auto", "cuda"), memory.resolve("auto", "cpu")) == ("bfloat16", "float32")
    assert memory.resolve("float16", "cuda") == "float16"


def test_loaded_pairs_give_their_memory_back() -> None:
    assert memory.freed(100, [20, None, 3]) == 123
    assert memory.freed(None, [20]) is None


# -- devices --------------------------------------------------------------------------------------------------------


def test_the_host_has_its_total_and_free_memory() -> None:
    found = memory.host()
    assert found.kind == "cpu"
    assert found.total is not None and found.free is not None
    assert 0 < found.free < found.total


def test_a_container_that_is_allowed_less_than_its_machine_has_less_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr("core.pairs.memory.psutil.virtual_memory", lambda: SimpleNamespace(total=1000, available=900))
    group = tmp_path / "box"
    group.mkdir()
    real = Path.read_text

    def own(self: Path, *args: Any) -> str:
        return "1:name=x:/\n0::/box\n" if str(self) == "/proc/self/cgroup" else real(self, *args)

    monkeypatch.setattr(Path, "read_text", own)
    (group / "memory.max").write_text("max\n")
    assert (memory.host().total, memory.host().free) == (1000, 900)
    (group / "memory.max").write_text("500\n")
    (group / "memory.current").write_text("300\n")
    (group / "memory.stat").write_text("anon 200\ninactive_file 50\n")
    assert (memory.host().total, memory.host().free) == (500, 250)


class Driver(ModuleType):
    """A management library with two GPUs, as nvidia-ml-py answers."""

    class NVMLError(Exception):
        """The driver's."""

    def __init__(self, broken: str = "") -> None:
        super().__init__("pynvml")
        self.broken, self.open = broken, 0
        self.devices = {0: "first", 1: "second", "GPU-b": "second"}

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError(self.broken)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index not in self.devices:
            raise self.NVMLError("Invalid Argument")
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        return self.devices[name]  # type: ignore[index]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=800, free=700 if handle == "first" else 600)

    def nvmlDeviceGetName(self, handle: str) -> str:
        return handle


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Two GPUs under a PyTorch with CUDA, none of them hidden."""
    driver = Driver()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", driver)
    monkeypatch.setattr(memory, "_torch_has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return driver


@pytest.mark.parametrize(
    ("visible", "name", "free"),
    [(None, "first", 700), ("1", "second", 600), ("1,0", "second", 600), ("GPU-b", "second", 600)],
)
def test_the_gpu_that_is_used_is_the_first_visible_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str | None, name: str, free: int
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert memory.cuda() == DeviceMemory("cuda", name, 800, free)
    assert memory.device_memory("auto").name == name
    assert memory.device_memory("cpu").kind == "cpu"
    assert driver.open == 0  # nothing is kept open


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_a_hidden_or_unknown_gpu_is_a_sentence_and_automatic_falls_to_the_cpu(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert memory.cuda().problem.startswith("No GPU can be used: ")
    assert memory.device_memory("auto").kind == "cpu"
    assert memory.device_memory("cuda").free is None


def test_a_driver_that_does_not_answer_is_a_sentence(driver: Driver) -> None:
    driver.broken = "Driver Not Loaded"
    assert memory.cuda().problem == (
        "No GPU can be used: no NVIDIA driver answers here (Driver Not Loaded): choose the CPU."
    )


def test_without_the_management_library_the_sentence_names_what_to_install(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in memory.cuda().problem


def test_whether_pytorch_has_cuda_is_read_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory._torch_has_cuda() == (torch.version.cuda is not None)
    for line, has in (("cuda: Optional[str] = '13.0'", True), ("cuda = '12.8'", True), ("cuda = None", False)):
        (tmp_path / "version.py").write_text(f"debug = False\n{line}\n")
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr("core.pairs.memory.importlib.util.find_spec", lambda name, spec=spec: spec)
        assert memory._torch_has_cuda() is has
