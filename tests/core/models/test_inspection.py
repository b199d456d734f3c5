"""Checking pairs without their weights: what is found, the process it happens in, and the inventory of known pairs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoConfig

from core.models.inspection import inspect_pair
from core.pairs import embedded
from core.pairs.checks import KEEP, Checks, CheckView
from core.pairs.findings import CheckReport, Finding, TokenDifference
from core.pairs.inventory import Inventory
from tests.helpers.tiny import byte_fallback_tokenizer, save_tiny_model

PATIENCE_S = 120.0


pytestmark = pytest.mark.usefixtures("empty_cache")


# -- what is found --------------------------------------------------------------------------------------------------


def test_a_pair_of_one_vocabulary_has_no_problem(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target", seed=1, head=320)
    draft = save_tiny_model(tmp_path / "draft", seed=2, head=304, layers=1)
    told: list[float] = []
    found = inspect_pair(f"{target}+{draft}", lambda message, share: told.append(share))
    assert (found.problems, found.absent) == ([], [])
    assert [model.attention for model in found.models] == ["llama, full attention in every layer"] * 2
    assert [model.description.layers for model in found.models if model.description] == [2, 1]
    assert found.vocabulary is not None
    assert (found.vocabulary.ids, found.vocabulary.differing) == (300, 0)
    assert told == sorted(told)


def test_of_different_tokenizers_the_first_differing_id_and_both_tokens_are_named(tmp_path: Path, tiny: Path) -> None:
    other = save_tiny_model(tmp_path / "other", seed=1, tokenizer=byte_fallback_tokenizer())
    found = inspect_pair(f"{tiny}+{other}").vocabulary
    assert found is not None
    assert found.first[0] == TokenDifference(3, "!", "<unk>")
    assert (len(found.first), found.differing) == (5, 297)
    assert "id 3 is '!' in the target and '<unk>' in the draft" in found.problem


def test_a_draft_that_cannot_read_every_id_is_a_problem_without_a_differing_id(tmp_path: Path, tiny: Path) -> None:
    found = inspect_pair(f"{tiny}+{save_tiny_model(tmp_path / 'narrow', seed=1, head=290, vocab=300)}").vocabulary
    assert found is not None
    assert (found.ids, found.first) == (290, ())
    assert "knows only ids below 290" in found.problem


def test_mixed_layers_are_named(tmp_path: Path) -> None:
    found = inspect_pair(str(save_tiny_model(tmp_path / "gemma", seed=1, model_type="gemma")))
    assert found.models[0].attention == "gemma3_text, layers of sliding attention and of full attention"


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("mamba", "layers of the kinds linear_attention"),
        ("rwkv", "recurrent state"),
        ("deepseek_v4", "compressed_sparse"),
    ],
)
def test_state_that_cannot_be_rolled_back_is_named_and_refused(tiny: Path, kind: str, state: str) -> None:
    (tiny / "config.json").write_text(json.dumps(AutoConfig.for_model(kind).to_dict()))
    (problem,) = inspect_pair(str(tiny)).problems
    assert problem.startswith(f"The model {tiny} ({kind}) keeps ")
    assert state in problem


def test_damaged_weights_are_found_from_their_header(tiny: Path) -> None:
    data = (tiny / "model.safetensors").read_bytes()
    (tiny / "model.safetensors").write_bytes(data[:-10])
    assert "The weight file model.safetensors" in inspect_pair(str(tiny)).problems[0]


def test_a_folder_that_is_not_there_and_a_name_that_is_none_are_sentences(tmp_path: Path) -> None:
    assert inspect_pair(str(tmp_path / "no")).absent == [
        f"The model folder {tmp_path / 'no'} is not a folder on this machine."
    ]
    assert "is neither a folder nor a model name" in inspect_pair("what is this?").absent[0]
    assert "names no draft" in inspect_pair("target+").problems[0]


def test_an_absent_hub_model_is_refused_in_a_sentence_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspect_pair("Qwen/Qwen3-0.6B")
    assert found.problems == []
    assert found.absent[0].startswith("The model Qwen/Qwen3-0.6B is not on this machine and HF_HUB_OFFLINE forbids")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "the model hub can't be reached" in inspect_pair("Qwen/Qwen3-0.6B").absent[0]


def test_a_hub_name_is_checked_from_its_configuration_and_tokenizer_alone(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    (tiny / "model.safetensors").unlink()

    def download(name: str, local_files_only: bool = False, **options: list[str]) -> str:
        if not local_files_only:
            asked.append(options["allow_patterns"])
        return str(tiny)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    found = inspect_pair("someone/tiny")
    assert "*.safetensors" not in asked[0] and "*.json" in asked[0]
    assert found.problems == []
    assert found.absent == ["The weights of someone/tiny are not on this machine: they are downloaded when it loads."]
    assert found.models[0].attention == "llama, full attention in every layer"


def test_the_embedded_model_is_not_converted_for_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "source", lambda: Path(__file__))
    found = inspect_pair("embedded")
    assert found.absent == [
        "SmolLM2-135M-Instruct is converted when it is first loaded (half a minute); it can be checked after that."
    ]
    assert not embedded.folder().exists()


def test_a_finding_travels_as_a_line(tiny: Path, tmp_path: Path) -> None:
    other = save_tiny_model(tmp_path / "other", seed=1, tokenizer=byte_fallback_tokenizer())
    step = CheckReport(finding=inspect_pair(f"{tiny}+{other}"))
    line = step.to_line()
    assert line.count("\n") == 1
    assert CheckReport.from_line(line) == step


# -- the process ----------------------------------------------------------------------------------------------------


@pytest.fixture
def checks() -> Iterator[Checks]:
    """Checks whose process answers what the test wrote as the pair's name: a program."""
    running = Checks((sys.executable, "-c", "import sys; exec(sys.argv[1])"))
    yield running
    running.close()


def settled(checks: Checks, name: str) -> CheckView:
    """The check once it is over."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        view = checks.view(name)
        assert view is not None
        if not view.running:
            return view
        time.sleep(0.01)
    raise AssertionError("the check did not end")


def until(checks: Checks, name: str, message: str) -> None:
    """Wait for a message of the check."""
    deadline = time.monotonic() + PATIENCE_S
    while (view := checks.view(name)) is None or view.message != message:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.timeout(180)
def test_a_check_runs_in_its_own_process_and_loads_no_tensor_library_here(tiny: Path) -> None:
    program = (
        "import sys, time; from core.pairs.checks import Checks; c = Checks(); c.start(sys.argv[1])\n"
        "while c.view(sys.argv[1]).running: time.sleep(.05)\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "print(c.view(sys.argv[1]).finding.problems, c.view(sys.argv[1]).finding.models[0].attention)"
    )
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", program, str(tiny)], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout == "[] llama, full attention in every layer\n", done.stderr


def test_progress_is_seen_and_the_finding_ends_the_check(checks: Checks) -> None:
    line = CheckReport(finding=Finding("x", (), None, "a problem")).to_line()
    name = (
        'import time; print(\'{"message": "half", "share": 0.5}\', flush=True)\n'
        f"time.sleep(.3); print({line.strip()!r}, flush=True); time.sleep(99)"
    )
    checks.start(name)
    until(checks, name, "half")
    view = settled(checks, name)
    assert view.finding is not None and view.finding.problem == "a problem"
    assert view.seconds < PATIENCE_S


def test_a_check_is_stopped_and_can_be_asked_for_again(checks: Checks) -> None:
    name = 'import time; print(\'{"message": "going"}\', flush=True); time.sleep(999)'
    checks.start(name)
    until(checks, name, "going")
    checks.stop(name)
    assert settled(checks, name).problem == "Stopped."
    checks.start(name)
    until(checks, name, "going")


def test_a_new_check_stops_the_one_that_runs(checks: Checks) -> None:
    slow = 'import time; print(\'{"message": "going"}\', flush=True); time.sleep(999)'
    checks.start(slow)
    until(checks, slow, "going")
    checks.start("raise SystemExit(7)")
    assert settled(checks, slow).problem == "Stopped."
    assert settled(checks, "raise SystemExit(7)").problem == (
        "The checking process ended without an answer (exit code 7): try again."
    )


def test_an_answer_that_is_not_a_report_is_a_sentence(checks: Checks) -> None:
    checks.start("print('Hello', flush=True)")
    assert settled(checks, "print('Hello', flush=True)").problem.startswith("The check's answer can't be read")


def test_a_name_that_no_process_can_take_is_a_sentence(checks: Checks) -> None:
    checks.start("a\x00b")
    assert "The check can't be started" in settled(checks, "a\x00b").problem


def test_only_the_last_checks_are_remembered(checks: Checks) -> None:
    for number in range(KEEP + 1):
        checks.start(f"a\x00{number}")
    assert checks.view("a\x000") is None
    assert checks.view(f"a\x00{KEEP}") is not None
    assert checks.view("never asked for") is None


# -- the inventory --------------------------------------------------------------------------------------------------


def known(*names: str):
    """The pairs of stored runs, by name."""
    return {pair.name: pair for pair in Inventory().known(names)}


def test_presets_come_first_and_a_preset_that_was_used_is_listed_once(tiny: Path) -> None:
    names = [pair.name for pair in Inventory().known(("qwen3-8b", str(tiny)))]
    assert names[0] == "embedded"
    assert names.count("qwen3-8b") == 1
    assert names[-1] == str(tiny)


def test_a_pair_that_is_here_is_complete_and_described(tmp_path: Path, tiny: Path) -> None:
    draft = save_tiny_model(tmp_path / "draft", seed=2, layers=1)
    pair = known(f"{tiny}+{draft}")[f"{tiny}+{draft}"]
    assert pair.complete
    assert [model.layers for model in pair.models] == [2, 1]


def test_what_is_missing_is_a_sentence_and_whether_it_can_be_downloaded_is_known(tmp_path: Path, tiny: Path) -> None:
    pairs = known("some/model", f"{tiny}+some/draft", str(tmp_path / "gone"), "typo !", "a+")
    assert pairs["some/model"].missing == (
        "some/model is not on this machine: downloaded when it is loaded, if the network allows."
    )
    assert pairs["some/model"].fetchable and pairs[f"{tiny}+some/draft"].fetchable
    assert not pairs[f"{tiny}+some/draft"].complete
    assert pairs[str(tmp_path / "gone")].missing.endswith("is not a folder on this machine.")
    assert "is neither a folder nor a model name" in pairs["typo !"].missing
    assert "names no draft" in pairs["a+"].missing
    assert not any(pairs[name].fetchable for name in (str(tmp_path / "gone"), "typo !", "a+"))


def test_a_damaged_model_has_a_sentence_instead_of_a_size(tiny: Path) -> None:
    (tiny / "model.safetensors").write_bytes(b"short")
    pair = known(str(tiny))[str(tiny)]
    assert "is damaged" in pair.missing
    assert not pair.complete


def test_the_disk_is_read_again_after_forget(tmp_path: Path, tiny: Path) -> None:
    inventory = Inventory()
    name = str(tiny)
    assert inventory.known((name,))[-1].complete
    (tiny / "model.safetensors").unlink()
    assert inventory.known((name,))[-1].complete  # believed for a while
    inventory.forget()
    assert not inventory.known((name,))[-1].complete
