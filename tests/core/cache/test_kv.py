"""The slot cache against plain forwards, on unmodified library models."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from core.cache.kv import SlotCache
from core.cache.rows import Extension
from core.cache.slots import SlotModel
from core.records import ROOT
from tests.helpers.checked import assert_row, path_tokens, poison
from tests.helpers.networks import CONFIGS


@pytest.fixture(params=CONFIGS.values(), ids=list(CONFIGS))
def network(request):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(request.param).eval()


def test_every_node_of_a_ragged_batch_of_trees_equals_a_plain_forward_of_its_path(network):
    model = SlotModel(network, vocab=60, slots=3, capacity=64)
    prompts = [[5, 6, 7, 8, 9, 10, 11], [12], []]
    trees = [((1, 2, 3, 4), (ROOT, 0, 0, 2)), ((1, 2), (ROOT, ROOT)), ((1, 2, 3), (ROOT, 0, 1))]
    for slot, prompt in enumerate(prompts):
        model.open(slot, prompt)
    rows = model.extend([Extension(slot, *tree) for slot, tree in enumerate(trees)])
    for slot, (tokens, parents) in enumerate(trees):
        for node in range(len(tokens)):
            assert_row(rows[slot][node], network, prompts[slot] + path_tokens(tokens, parents, node))


def test_after_keeping_a_branch_that_is_not_the_first_the_cache_is_that_branch(network):
    model = SlotModel(network, vocab=60, slots=2, capacity=64)
    model.open(0, [5, 6, 7, 8, 9, 10])
    model.open(1, [3])
    tree = ((1, 2, 3, 4, 5), (ROOT, 0, 0, 2, 3))
    model.extend([Extension(0, *tree), Extension(1, (7,), (ROOT,))])
    model.keep(0, [0, 2, 3])
    model.keep(1, [0])
    poison(model, 0)
    rows = model.extend([Extension(0, (20, 21), (ROOT, ROOT)), Extension(1, (22,), (ROOT,))])
    assert_row(rows[0][0], network, [5, 6, 7, 8, 9, 10, 1, 3, 4, 20])
    assert_row(rows[0][1], network, [5, 6, 7, 8, 9, 10, 1, 3, 4, 21])
    assert_row(rows[1][0], network, [3, 7, 22])


def test_rejected_rows_full_of_nan_change_nothing_even_beside_a_longer_slot(network):
    model = SlotModel(network, vocab=60, slots=2, capacity=64)
    model.open(0, list(range(5, 30)))
    model.open(1, [3, 4])
    model.extend([Extension(0, (1,), (ROOT,)), Extension(1, tuple(range(10, 22)), tuple(range(-1, 11)))])
    model.keep(0, [0])
    model.keep(1, [0])
    for slot in (0, 1):
        poison(model, slot)
    keys = model.cache.rows[0].keys
    assert keys is not None
    assert torch.isnan(keys[1]).any()
    rows = model.extend([Extension(0, (1,), (ROOT,)), Extension(1, (2,), (ROOT,))])
    assert_row(rows[1][0], network, [3, 4, 10, 2])
    assert_row(rows[0][0], network, [*range(5, 30), 1, 1])


def test_a_pass_over_some_of_the_slots_leaves_the_others_alone(network):
    model = SlotModel(network, vocab=60, slots=3, capacity=32)
    for slot, prompt in enumerate([[5, 6], [7, 8, 9], [10]]):
        model.open(slot, prompt)
    rows = model.extend([Extension(2, (1, 2), (ROOT, 0)), Extension(0, (3,), (ROOT,))])
    assert_row(rows[0][1], network, [10, 1, 2])
    assert_row(rows[1][0], network, [5, 6, 3])
    assert_row(model.extend([Extension(1, (4,), (ROOT,))])[0][0], network, [7, 8, 9, 4])


def test_a_prompt_longer_than_one_prefill_chunk_is_cached_whole(network, monkeypatch):
    monkeypatch.setattr("core.cache.slots.PREFILL_CHUNK", 4)
    model = SlotModel(network, vocab=60, slots=1, capacity=32)
    prompt = [5, 6, 7, 8, 9, 10, 11, 12, 13]
    model.open(0, prompt)
    assert_row(model.extend([Extension(0, (1,), (ROOT,))])[0][0], network, [*prompt, 1])


def test_arranged_scratch_rows_keep_their_ancestors():
    cache = SlotCache(layers=1, slots=1, capacity=16, device=torch.device("cpu"))
    cache.append(0, [ROOT])
    cache.append(0, [0, 0])
    cache.append(0, [2])
    cache.arrange(0, [0, 2, 3])
    state = cache.slots[0]
    assert state.depths == [0, 1, 2]
    assert state.ancestry.tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_a_slot_without_room_says_how_many_rows_it_has():
    cache = SlotCache(layers=1, slots=1, capacity=2, device=torch.device("cpu"))
    with pytest.raises(IndexError, match="slot 0 holds 2 rows; 0 are in use and 3 more don't fit"):
        cache.append(0, [ROOT, 0, 1])


def test_reopening_a_slot_forgets_the_sequence_before(network):
    model = SlotModel(network, vocab=60, slots=1, capacity=32)
    model.open(0, [5, 6, 7, 8, 9])
    model.open(0, [10])
    poison(model, 0)
    assert_row(model.extend([Extension(0, (1,), (ROOT,))])[0][0], network, [10, 1])


def test_a_wider_head_is_cropped_and_a_narrower_one_padded_with_impossible_ids(network):
    wide = SlotModel(network, vocab=50, slots=1, capacity=8)
    wide.open(0, [1])
    assert wide.extend([Extension(0, (2,), (ROOT,))])[0].shape == (1, 50)
    narrow = SlotModel(network, vocab=64, slots=1, capacity=8)
    narrow.open(0, [1])
    assert narrow.extend([Extension(0, (2,), (ROOT,))])[0][0, 60:].tolist() == [float("-inf")] * 4
