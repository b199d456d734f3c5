"""Recorded passes on the CPU, replayed from tapes: padding, buckets and static tensors against passes as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig

import core.cache.slots
from core.cache.graphs import Graphs, Recording, graphs_on
from core.cache.rows import Extension
from core.cache.slots import SlotModel
from core.records import ROOT
from tests.helpers.checked import assert_row, path_tokens, poison, watched
from tests.helpers.decoding import ask, decode_all
from tests.helpers.networks import CONFIGS, PROMPTS, SIZES, real_pair
from tests.helpers.networks import network as tiny
from tests.helpers.tape import TapeRecorder


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> TapeRecorder:
    """Every model made from here on records its passes on tapes; buckets of 8 rows, so that they change often."""
    one = TapeRecorder()
    monkeypatch.setattr("core.cache.graphs.LENGTHS", 8)
    monkeypatch.setattr(core.cache.slots, "graphs_on", lambda device: Graphs(one))
    return one


@pytest.fixture(params=CONFIGS.values(), ids=list(CONFIGS))
def network(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(request.param).eval()


def test_replayed_steps_and_trees_of_a_ragged_batch_equal_plain_forwards_of_their_paths(network, recorder):
    model = SlotModel(network, vocab=60, slots=3, capacity=64)
    sequences = [[5, 6, 7, 8, 9, 10, 11], [12], []]
    trees = [((1, 2, 3, 4), (ROOT, 0, 0, 2)), ((1, 2), (ROOT, ROOT)), ((1, 2, 3), (ROOT, 0, 1))]
    for slot, prompt in enumerate(sequences):
        model.open(slot, prompt)
    for _ in range(4):
        rows = model.extend([Extension(slot, *tree) for slot, tree in enumerate(trees)])
        for slot, (tokens, parents) in enumerate(trees):
            for node in range(len(tokens)):
                assert_row(rows[slot][node], network, sequences[slot] + path_tokens(tokens, parents, node))
        for slot, path in enumerate([[0, 2, 3], [1], [0, 1]]):
            model.keep(slot, path)
            sequences[slot] += [trees[slot][0][node] for node in path]
            poison(model, slot)
        step = model.extend([Extension(1, (7,), (ROOT,))])  # a pass over one of the slots, of another width
        assert_row(step[0][0], network, [*sequences[1], 7])
        model.keep(1, [0])
        sequences[1].append(7)
    assert 0 < recorder.recorded < recorder.replayed == 8


@pytest.mark.parametrize("shape", ["chain:3", "s3_k2_d6"])
@pytest.mark.parametrize("drafter", ["none", "model", "prompt_lookup", "early_exit:2"])
def test_a_batch_decodes_the_same_from_recordings(recorder, drafter, shape, monkeypatch):
    target = tiny(1)
    pair = real_pair(target, tiny(2, layers=1))
    requests = [ask(prompt, drafter, "none" if drafter == "none" else shape, max_new_tokens=12) for prompt in PROMPTS]
    checked = watched(monkeypatch, target)
    recorded = [one.tokens for one in decode_all(requests, pair)]
    assert checked[0].rows >= sum(map(len, recorded)) / 4
    assert recorder.recorded < recorder.replayed
    monkeypatch.setattr(core.cache.slots, "graphs_on", graphs_on)
    assert [one.tokens for one in decode_all(requests, pair)] == recorded


def test_sampled_chains_from_recordings_are_the_same_tokens(recorder, monkeypatch):
    pair = real_pair(tiny(1), tiny(2, layers=1))
    requests = [ask(prompt, "early_exit:2", "chain:4", temperature=1.0, seed=3) for prompt in PROMPTS[:2]]
    recorded = [one.tokens for one in decode_all(requests, pair)]
    monkeypatch.setattr(core.cache.slots, "graphs_on", graphs_on)
    assert [one.tokens for one in decode_all(requests, pair)] == recorded


def test_passes_of_one_shape_over_other_slots_or_in_another_order_are_not_mixed_up(recorder):
    network = tiny(1)
    model = SlotModel(network, vocab=16, slots=2, capacity=40)
    prompts = {0: [5, 6, 7], 1: [8, 9]}
    for slot, prompt in prompts.items():
        model.open(slot, prompt)
    for slots in [(0,), (1,), (0, 1), (1, 0), (0,)]:
        rows = model.extend([Extension(slot, (4,), (ROOT,)) for slot in slots])
        for slot, row in zip(slots, rows, strict=True):
            assert_row(row[0], network, [*prompts[slot], 4])
            model.keep(slot, [])


def test_a_padded_pass_writes_only_its_own_rows_and_the_spare_one(recorder):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).eval()
    model = SlotModel(network, vocab=60, slots=2, capacity=20)
    model.open(0, [5, 6, 7])
    model.open(1, [8])
    keys = model.cache.rows[0].keys
    assert keys is not None
    before = keys.clone()
    model.extend([Extension(0, (1, 2, 3), (ROOT, 0, 1)), Extension(1, (4,), (ROOT,))])
    changed = (keys != before).any(dim=3).any(dim=1)
    assert [row.nonzero()[:, 0].tolist() for row in changed] == [[3, 4, 5, 20], [1, 20]]


def test_prompts_are_not_recorded(recorder):
    model = SlotModel(tiny(1), vocab=16, slots=1, capacity=40)
    model.open(0, [1, 2, 3])
    assert recorder.recorded == 0


@pytest.mark.parametrize(
    ("batch", "nodes", "length", "bucket"),
    [
        (1, 1, 1, (1, 128)),
        (1, 3, 128, (4, 128)),
        (1, 8, 129, (8, 256)),
        (16, 9, 900, (16, 1000)),
        (1, 256, 900, (256, 1000)),
        (1, 257, 900, None),
        (16, 17, 900, None),
    ],
)
def test_passes_are_padded_to_powers_of_two_and_multiples_of_128_within_the_capacity(batch, nodes, length, bucket):
    assert Graphs(TapeRecorder()).bucket(batch, nodes, length, 1000) == bucket


def doubled(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0] * 2,)


def test_recordings_are_kept_by_name_and_shape_and_the_least_recently_used_is_dropped():
    recorder = TapeRecorder()
    graphs = Graphs(recorder, most=2)
    for name, width, recorded in [("a", 1, 1), ("a", 1, 1), ("a", 2, 2), ("a", 1, 2), ("b", 1, 3), ("a", 2, 4)]:
        assert graphs.run(name, (torch.full((width,), 3.0),), doubled)[0].tolist() == [6.0] * width
        assert recorder.recorded == recorded, (name, width)


def test_outputs_are_the_callers_own_whatever_is_replayed_later():
    graphs = Graphs(TapeRecorder())
    first = graphs.run("a", (torch.ones(2),), doubled)[0]
    graphs.run("a", (torch.zeros(2),), doubled)
    assert first.tolist() == [2.0, 2.0]


class Refusing:
    """A recorder of a device that can't record this work."""

    def __init__(self, error: RuntimeError) -> None:
        self.error = error
        self.asked = 0

    def record(self, work: Callable[[], tuple[Tensor, ...]]) -> Recording:
        self.asked += 1
        raise self.error


def test_a_model_that_cannot_be_recorded_decodes_without_and_the_log_says_why(monkeypatch, caplog):
    refusing = Refusing(RuntimeError("operation not permitted when stream is capturing"))
    pair = real_pair(tiny(1))
    plain = decode_all([ask()], pair)[0].tokens
    monkeypatch.setattr(core.cache.slots, "graphs_on", lambda device: Graphs(refusing))
    with caplog.at_level(logging.WARNING, logger="speclens.engine"):
        assert decode_all([ask()], pair)[0].tokens == plain
    assert refusing.asked == 1
    assert "can't be recorded" in caplog.text
    assert "operation not permitted when stream is capturing" in caplog.text


def test_memory_that_runs_out_while_recording_is_not_taken_for_a_model_that_cannot_be_recorded():
    with pytest.raises(torch.OutOfMemoryError):
        Graphs(Refusing(torch.OutOfMemoryError("CUDA out of memory"))).run("a", (torch.ones(1),), doubled)


def test_a_forward_that_reads_numbers_back_breaks_its_recording():
    with pytest.raises(RuntimeError, match="capturing"):
        TapeRecorder().record(lambda: (torch.full((2,), float(torch.rand(1).sum())),))


def test_the_cpu_records_nothing():
    assert graphs_on(torch.device("cpu")) is None
    model = SlotModel(tiny(1), vocab=16, slots=1, capacity=8)
    model.open(0, [1])
    assert model.cache.rows[0].keys is not None
    assert model.cache.rows[0].keys.shape[2] == 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [LlamaConfig, Gemma2Config])
@pytest.mark.parametrize("drafter", ["none", "model", "early_exit:2"])
def test_on_cuda_a_batch_decodes_the_same_from_captured_graphs(kind, drafter, monkeypatch):
    device = torch.device("cuda", torch.cuda.current_device())
    pair = real_pair(tiny(1, kind=kind).to(device), tiny(2, layers=1).to(device))
    pair.device = device
    requests = [ask(prompt, drafter, "none" if drafter == "none" else "chain:4") for prompt in PROMPTS]
    captured = [one.tokens for one in decode_all(requests, pair)]
    monkeypatch.setattr(core.cache.slots, "graphs_on", lambda device: None)
    assert [one.tokens for one in decode_all(requests, pair)] == captured
