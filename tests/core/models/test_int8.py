"""The precision int8: what is quantised, that rows stay apart, that it decodes losslessly, and that it is never taken
for the float32 target it is made from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from core.drafting.early_exit import shares_activations
from core.errors import ModelUnavailable
from core.models import int8 as quantised
from core.models.int8 import Int8Linear
from core.models.load import load_pair
from core.models.pair import Pair
from core.pairs import memory
from core.pairs.description import describe
from core.pairs.memory import Need, fit, need, published_need
from core.records import Started
from core.results.fingerprint import fingerprint
from core.results.matching import matched, relation
from core.types import PairSpec
from tests.helpers.decoding import ask, decode, decode_all
from tests.helpers.tiny import save_tiny_model

needs_exact = pytest.mark.skipif(not quantised.exact(), reason="int8 products are not exact on this CPU")
KINDS = ["llama", "qwen2", "qwen3", "mistral", "gemma"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that loading remembers lie in a folder of the test's own."""
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A tiny Llama's folder."""
    return save_tiny_model(tmp_path / "tiny", seed=1, layers=3)


def load(*names: object, precision: Any = "int8", device: Any = "cpu") -> Pair:
    """The pair of these models."""
    return load_pair(PairSpec(name="+".join(map(str, names)), device=device, precision=precision))


def refused(*names: object, **options: Any) -> str:
    """The sentence with which the pair is refused."""
    with pytest.raises(ModelUnavailable) as caught:
        load(*names, **options)
    return str(caught.value)


def int8(inputs: int = 96, outputs: int = 40, bias: bool = True) -> tuple[nn.Linear, Int8Linear]:
    """A random layer and what becomes of it."""
    torch.manual_seed(0)
    layer = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    return layer, Int8Linear(layer)


# -- one layer ------------------------------------------------------------------------------------------------------


@needs_exact
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_its_rounded_weights_on_activations_as_exact_as_float32(bias: bool) -> None:
    layer, small = int8(bias=bias)
    x = torch.randn(7, 96) * torch.logspace(-3, 3, 7)[:, None]
    rounded = small.weight.double() * small.scale.double()[:, None]
    expected = nn.functional.linear(x.double(), rounded, layer.bias.double() if bias else None)
    assert torch.allclose(small(x).double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().min(1)[0].max()))
    step = layer.weight.abs().amax(1, keepdim=True) / 127
    assert ((layer.weight - rounded).abs() <= 0.501 * step).all()


@needs_exact
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 64), (96, 40), (577, 301)])
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_a_rows_result_does_not_depend_on_the_other_rows_of_the_pass(inputs: int, outputs: int, rows: int) -> None:
    _, small = int8(inputs, outputs)
    x = torch.randn(rows, inputs)
    others = torch.randn(5, inputs) * 1000
    expected = torch.cat([small(row[None]) for row in x])
    assert torch.equal(small(x), expected)
    assert torch.equal(small(torch.cat([others, x]))[5:], expected)
    assert torch.equal(small(x.reshape(1, rows, inputs))[0], expected)


@needs_exact
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_row_stays_broken_and_spoils_no_other(broken: float) -> None:
    _, small = int8()
    x = torch.randn(3, 96)
    expected = small(x)
    x[1, 5] = broken
    found = small(x)
    assert not found[1].isfinite().any()
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


@needs_exact
def test_a_small_change_of_an_activation_flips_no_rounding_that_shows() -> None:
    _, small = int8(bias=False)
    x = torch.randn(500, 96)
    near = x * (1 + 1e-5 * torch.randn(500, 96))
    assert float((small(x) - small(near)).abs().max()) < 1e-4 * float(small(x).abs().max())


@needs_exact
def test_a_row_of_zeros_gives_the_bias() -> None:
    layer, small = int8()
    assert torch.equal(small(torch.zeros(1, 96))[0], layer.bias)


# -- loading --------------------------------------------------------------------------------------------------------


@needs_exact
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", [False, True])
def test_all_linear_layers_and_the_head_become_int8_and_nothing_else(tmp_path: Path, kind: Any, tie: bool) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1, model_type=kind, tie=tie)
    pair, plain = load(folder), load(folder, precision="float32")
    network: Any = pair.target.network
    original: Any = plain.target.network
    assert (pair.precision, pair.dtype, network.dtype, network.device.type) == (
        "int8", torch.float32, torch.float32, "cpu",
    )  # fmt: skip
    assert not [one for one in network.modules() if isinstance(one, nn.Linear)]
    kinds = [sum(isinstance(one, k) for one in net.modules()) for net, k in
             ((network, Int8Linear), (original, nn.Linear))]  # fmt: skip
    assert kinds[0] == kinds[1] > 0
    assert isinstance(network.get_output_embeddings(), Int8Linear)
    assert torch.equal(network.get_input_embeddings().weight, original.get_input_embeddings().weight)
    assert (pair.vocab, pair.target.vocab) == (plain.vocab, plain.target.vocab)
    assert pair.target.content_hash == plain.target.content_hash  # of the files; the precision is told apart from them
    ids = torch.arange(10, 40)[None]
    with torch.no_grad():
        found, expected = network(ids).logits, original(ids).logits
    assert 1e-4 < float((found - expected).abs().max()) < 0.1 * float(expected.abs().max())


@needs_exact
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", [False, True])
def test_the_need_is_what_an_int8_network_allocates(tmp_path: Path, kind: Any, tie: bool) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1, model_type=kind, tie=tie)
    said, network = describe("tiny", folder), load(folder).target.network
    buffers = [b for one in network.modules() if isinstance(one, Int8Linear) for b in one.buffers(recurse=False)]
    assert memory.weight_bytes(said, "int8") == sum(t.nbytes for t in [*network.parameters(), *buffers])
    assert memory.cache_bytes(said, "int8", 9) == memory.cache_bytes(said, "float32", 9)
    assert need([said], "int8", 9).peak == memory.weight_bytes(said, "float32")


def test_a_pair_must_fit_in_float32_one_model_after_the_other(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = describe("tiny", tiny)
    small, whole = memory.weight_bytes(said, "int8") or 0, memory.weight_bytes(said, "float32") or 0
    needed = need([said, said], "int8", 0)
    assert (needed.weights, needed.loading) == (2 * small, small + whole)
    assert fit(needed, small + whole) == "fits"
    assert fit(needed, small + whole - 1) == "nothing"
    assert published_need(1000, "int8") == Need(weights=500, cache=None, rows=0, loading=2000)
    free = SimpleNamespace(total=10**9, available=whole - 1)
    monkeypatch.setattr("core.pairs.memory.psutil.virtual_memory", lambda: free)
    assert "GB in float32, from which int8 is made, but 0.0 GB of memory are free" in refused(tiny)


def test_a_gpu_refuses_int8(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    for device in ("auto", "cuda"):
        assert refused(tiny, device=device) == (
            "int8 is a precision of the CPU here: choose the device cpu, or another precision."
        )


def test_a_model_without_linear_layers_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "gpt2", seed=1, model_type="gpt2")
    assert refused(folder) == (
        f"The layers of {folder} (GPT2LMHeadModel) have no plain linear layers to quantise to int8: "
        "choose another precision."
    )


def test_a_cpu_whose_products_overflow_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        pairs = (a.int()[:, :, None] * b.int()[None]).unflatten(1, (-1, 2)).sum(2)
        return pairs.clamp(-(2**15), 2**15 - 1).sum(1).int()

    monkeypatch.setattr(quantised, "_product", saturating)
    assert quantised.exact()  # two products of 127 × 127 fit 16 bits: only shifted to 0 … 255 they don't
    monkeypatch.setattr(quantised, "_product", lambda a, b: saturating(a.int() + 128, b) - 128 * b.int().sum(0).int())
    assert "adds products of int8 numbers in 16 bits" in refused(tiny)


# -- decoding -------------------------------------------------------------------------------------------------------


@needs_exact
@pytest.mark.parametrize("shape", ["chain:4", "s3_k2_d6"])
@pytest.mark.parametrize("drafter", ["model", "prompt_lookup", "early_exit:1"])
def test_greedy_speculative_tokens_of_an_int8_pair_are_its_plain_ones(
    tiny: Path, tmp_path: Path, drafter: str, shape: str
) -> None:
    pair = load(tiny, save_tiny_model(tmp_path / "draft", seed=2, layers=1))
    prompts = ["the quick brown fox", "over and over and over", "end of the round"]
    plain = [decode(ask(prompt), pair).tokens for prompt in prompts]
    assert [one.tokens for one in decode_all([ask(prompt, drafter, shape) for prompt in prompts], pair)] == plain
    assert shares_activations(pair.target.network, 1)


@needs_exact
@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_a_token_decoded_alone_has_the_logits_it_has_in_a_pass_of_many(tmp_path: Path, kind: Any) -> None:
    network = load(save_tiny_model(tmp_path / "tiny", seed=4, model_type=kind, layers=4)).target.network
    ids = torch.randint(3, 300, (1, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = network(ids).logits[0]
        alone = torch.stack([network(ids[:, : n + 1], logits_to_keep=1).logits[0, -1] for n in range(24)])
    assert float((whole - alone).abs().max()) < 1e-4 * float(whole.abs().max())


# -- never the same target ------------------------------------------------------------------------------------------


@needs_exact
def test_an_int8_run_is_never_matched_with_a_float32_run_of_the_same_weights(tiny: Path) -> None:
    request, started = ask("the quick brown fox"), Started(request=0, prompt_tokens=3, prefill_s=0.0)
    small, whole = (fingerprint(load(tiny, precision=one), request, started) for one in ("int8", "float32"))
    assert (small.precision, whole.precision) == ("int8", "float32")
    assert small.target_hash == whole.target_hash
    assert not matched(small, whole)
    found = relation(whole, small)
    assert not found.matched
    assert found.other_target
    assert {difference.field for difference in found.confounding} == {"precision", "cache_policy"}
    assert matched(small, fingerprint(load(tiny), ask("the quick brown fox", "prompt_lookup", "chain:4"), started))
