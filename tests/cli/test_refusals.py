"""``python -m core`` with what it can't use (exit code 2) and what it can't do here (1): each with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from core.settings import ROOT_FOLDER

# -- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--colour", "red"], "No such option: --colour"),
        (["--temperature", "warm"], "Invalid value for '--temperature'"),
        (["--temperature", "-1"], "Temperature is -1.0: input should be greater than or equal to 0."),
        (["--temperature", "nan"], "Temperature is nan: input should be a finite number."),
        (["--top-p", "0"], "Top_p is 0.0: input should be greater than 0."),
        (["--max-new-tokens", "0"], "Max_new_tokens is 0"),
        (["--seed", "-1"], "Seed is -1"),
        (["--precision", "int4"], "Precision is 'int4'"),
        (["--device", "tpu"], "Device is 'tpu'"),
        (["--drafter", "eagle"], "'eagle' is no drafter: write none, model"),
        (["--shape", "chain:0"], "Gamma is 0: input should be greater than or equal to 1."),
        (["--shape", "tree"], "'tree' is no shape"),
        (["--rule", "greedy"], "'greedy' is no rule"),
        (["--rule", "lenience:0"], "Ell is 0.0"),
        (["--prompt", " "], "The prompt is empty: type something to decode."),
        (["--stop", ""], "Stop_strings is ''"),
        (["--drafter", "none", "--shape", "chain:4"], "Plain decoding has neither a drafter nor a shape"),
        (["--drafter", "none", "--rule", "lenience:0.5"], "Plain decoding verifies nothing"),
        (["--drafter", "model"], "has no draft model: name one as TARGET+DRAFT"),
        (["--drafter", "early_exit:9"], "Early_exit:9 asks for more layers than"),
        (["--prompt", "a " * 5000], "and"),
        (["--pair", "embedded+"], "The pair 'embedded+' names no draft"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_values_exit_with_2_and_a_sentence(generate, arguments, sentence):
    ran = generate("--json", *arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_a_prompt_and_a_batch_or_neither_is_a_sentence(call):
    sentence = "Error: Give either --prompt or --batch."
    assert sentence in call("generate", "--prompt", "a", "--batch", "b").err
    neither = call("generate")
    assert (neither.code, neither.err.strip()) == (2, sentence)


def test_an_unknown_command_exits_with_2(call):
    ran = call("degenerate")
    assert ran.code == 2
    assert "No such command 'degenerate'" in ran.err


# -- bad batch files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no requests: write one JSON object a line, with a prompt."),
        ('{"prompt": "a"}\nnot json\n', "Line 2 of the batch is no JSON object"),
        ('["a"]', "Line 1 of the batch is no JSON object."),
        ("\n\n{bad\n", "Line 3 of the batch is no JSON object"),
        ("[" * 100_000, "Line 1 of the batch has a number too long or brackets too deep to read."),
        ('{"prompt": "a", "seed": ' + "1" * 5000 + "}", "Line 1 of the batch has a number too long"),
        ('{"prompt": "a", "sampling": {"top_k": 9223372036854775808}}', "Line 1 of the batch: sampling top_k is 92233"),
        ('{"prompt": ""}', "Line 1 of the batch: the prompt is empty"),
        ("{}", "Line 1 of the batch: prompt is missing."),
        ('{"prompt": "a", "shape": "chain:0"}', "Line 1 of the batch: gamma is 0"),
        ('{"prompt": "a", "shape": 4}', "Line 1 of the batch: shape is 4"),
        ('{"prompt": "a", "rule": ["lossless"]}', "Line 1 of the batch: rule is ['lossless']"),
        ('{"prompt": "a", "max_new_tokens": 0}', "Line 1 of the batch: stops max_new_tokens is 0"),
        ('{"prompt": "a", "colour": "red"}', "Line 1 of the batch: colour is 'red'"),
    ],
)
def test_a_bad_batch_file_ends_in_a_sentence_with_the_line(generate, tmp_path, content, sentence):
    file = tmp_path / "batch.jsonl"
    file.write_text(content, encoding="utf-8")
    ran = generate("--json", "--batch", str(file))
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.out == ""


def test_a_batch_line_ends_at_a_line_feed_alone_and_a_byte_order_mark_is_no_text(generate, tmp_path):
    file = tmp_path / "batch.jsonl"
    file.write_text('{"prompt": "a\u2028b\x85c"}\n', encoding="utf-8-sig")
    ran = generate("--json", "--batch", str(file))
    assert ran.code == 0, ran.err
    assert len(ran.summaries) == 1


def test_counts_beyond_what_can_be_stored_are_refused(generate):
    for option in ("--top-k", "--min-new-tokens", "--max-new-tokens"):
        ran = generate(option, str(2**63))
        assert ran.code == 2
        assert f"{option[2:].replace('-', '_').capitalize()} is 9223372036854775808" in ran.err


def test_a_batch_file_that_is_absent_or_no_text_ends_in_a_sentence(generate, tmp_path):
    absent = generate("--batch", str(tmp_path / "absent.jsonl"))
    assert absent.code == 2
    assert "can't be read" in absent.err
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    assert generate("--batch", str(tmp_path / "binary.jsonl")).code == 2


# -- what can't be done here ----------------------------------------------------------------------------------------


def test_a_pair_that_is_not_on_this_machine_exits_with_1_and_a_sentence(generate):
    ran = generate("--json", "--pair", "nobody/no-such-model")
    assert ran.code == 1
    assert ran.err.count("Error: ") == 1
    assert "nobody/no-such-model" in ran.err
    assert "Traceback" not in ran.err


def test_a_run_that_fails_while_decoding_exits_with_1_and_its_sentence(generate, folder, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = load_file(broken / "model.safetensors")
    seen = AutoTokenizer.from_pretrained(folder)("quick")["input_ids"][-1]
    weights["model.embed_tokens.weight"][seen] = float("nan")  # for this one token: a model without any finite logits
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    ran = generate("--json", "--pair", str(broken))
    assert ran.code == 1
    (summary,) = ran.summaries
    assert (summary["stop_reason"], summary["output_tokens"], summary["tokens_per_round"]) == ("failed", 0, None)
    assert summary["error"] == (
        "round 1: the target's logits after the root are NaN or infinite: try float32, or other weights."
    )


# -- streams --------------------------------------------------------------------------------------------------------


def piped(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A shell command with ``$SPECLENS`` for ``python -m core``."""
    ours = {"SPECLENS": f"{sys.executable} -m core", "PYTHONPATH": str(ROOT_FOLDER)}
    return subprocess.run(
        ["bash", "-c", command], env=os.environ | ours | environment, capture_output=True, check=False
    )


def test_a_prompt_of_bytes_that_are_no_text_is_a_sentence():
    done = piped(r"printf 'a\xff' | $SPECLENS generate --prompt -", PYTHONUTF8="1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"Error: Standard input is no text in UTF-8: byte 2 is 0xff. Save it as UTF-8.\n"


def test_a_stream_that_lacks_characters_shows_escapes_and_no_traceback():
    done = piped("$SPECLENS rules", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u" in done.stdout


def test_a_reader_that_leaves_early_is_no_traceback():
    done = piped("$SPECLENS rules --p .5,.3,.2 --q .6,.1,.3 --json | head -c 1")
    assert (done.stdout, done.stderr) == (b"{", b"")
