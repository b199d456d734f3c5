"""``python -m core``: what it prints, what it keeps, and how it ends when all goes well or is interrupted."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.pairs.presets import PRESETS
from storage.filters import RunFilter
from storage.queries import Runs
from storage.store import Store
from tests.cli.conftest import Finished

ROOT = Path(__file__).parent.parent.parent

ROUND_FIELDS = {"index", "nodes", "committed", "source", "draft_s", "verify_s", "state_s", "other_s", "wall_s"} | {
    "drafted",
    "accepted",
    "rejected",
    "unreached",
    "cut",
}
NODE_FIELDS = {"token", "parent", "fate", "p", "q", "score", "accept_prob", "u"}
SUMMARY_FIELDS = {
    "text",
    "output_tokens",
    "tokens_per_round",
    "accepted_length",
    "tokens_per_second",
    "stop_reason",
    "prompt_tokens",
    "ttft_s",
    "prefill_s",
    "e2e_s",
}


# -- JSON lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["lossless", "lenience:0.4", "spec_cascade:0.5,redraw=target"])
@pytest.mark.parametrize(
    ("drafter", "shape"),
    [
        ("prompt_lookup", "chain:4"),
        ("prompt_lookup:1,2", "s3_k2_d6"),
        ("early_exit:1", "chain:4"),
        ("early_exit:1", "s3_k2_d6"),
    ],
)
def test_json_is_one_object_a_round_and_then_the_summary(generate, drafter, shape, rule):
    ran = generate(
        "--json", "--drafter", drafter, "--shape", shape, "--rule", rule, "--temperature", "0.7", "--seed", "1"
    )
    assert ran.code == 0
    *rounds, summary = ran.objects
    assert rounds
    for number, one in enumerate(rounds):
        assert set(one) >= ROUND_FIELDS
        assert one["index"] == number
        assert one["drafted"] == len(one["nodes"]) == one["accepted"] + one["rejected"] + one["unreached"] + one["cut"]
        assert all(set(node) >= NODE_FIELDS for node in one["nodes"])
        assert all(-1 <= node["parent"] < place for place, node in enumerate(one["nodes"]))
    assert set(summary) >= SUMMARY_FIELDS
    assert summary["output_tokens"] == sum(len(one["committed"]) for one in rounds) == 12
    assert summary["stop_reason"] == "max_new_tokens"
    assert summary["text"] == "".join(piece for one in rounds for piece in one["committed_text"])
    assert summary["error"] is None


def test_standard_output_holds_json_and_nothing_else_and_progress_goes_to_standard_error(generate):
    ran = generate("--json")
    assert all(isinstance(one, dict) for one in ran.objects)
    assert "loading weights" in ran.err


def test_plain_decoding_has_rounds_without_nodes(generate):
    ran = generate("--json", "--drafter", "none")
    assert [one["nodes"] for one in ran.rounds] == [[]] * 12
    assert ran.summaries[0]["tokens_per_round"] == 1.0
    assert ran.summaries[0]["draft_acceptance_rate"] is None


def test_the_shape_none_alone_means_plain_decoding(generate):
    assert len(generate("--json", "--shape", "none").rounds) == 12


def test_the_default_is_greedy_with_the_pairs_own_drafter_and_a_chain_of_four(generate):
    ran = generate("--json", "--max-new-tokens", "40", "--min-new-tokens", "40")
    assert ran.out
    assert max(one["drafted"] for one in ran.rounds) <= 4
    plain = generate("--json", "--max-new-tokens", "40", "--min-new-tokens", "40", "--drafter", "none")
    assert ran.summaries[0]["text"] == plain.summaries[0]["text"]


def test_the_same_seed_gives_the_same_tokens_and_another_seed_gives_others(generate):
    def tokens(seed: str) -> list[int]:
        ran = generate("--json", "--temperature", "1.5", "--seed", seed)
        return [token for one in ran.rounds for token in one["committed"]]

    assert tokens("5") == tokens("5")
    assert tokens("5") != tokens("6")


def test_a_stop_string_ends_the_run(generate):
    text = generate("--json").summaries[0]["text"]
    ran = generate("--json", "--stop", text[3:6], "--stop", "never in the text")
    assert ran.summaries[0]["stop_reason"] == "stop_string"
    assert ran.summaries[0]["text"] == text[: text.index(text[3:6])]


def test_a_terminal_shows_the_text_and_the_metrics_with_their_units(generate):
    text = generate("--json").summaries[0]["text"]
    ran = generate()
    assert ran.code == 0
    assert text in ran.out.replace("\r", "")
    assert "request 0: max_new_tokens" in ran.out
    assert "Tokens per round" in ran.out
    assert "tokens/round" in ran.out


def test_a_prompt_can_come_from_standard_input(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the quick brown fox the quick"))
    ran = generate("--json", "--prompt", "-")
    assert ran.summaries[0]["text"] == generate("--json").summaries[0]["text"]


# -- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_decodes_each_line_as_it_would_be_decoded_alone(generate, tmp_path):
    lines = [
        {"prompt": "the quick brown fox the quick"},
        {"prompt": "the draft", "seed": 7, "max_new_tokens": 9},
        {"prompt": "the end of the round; the end", "shape": "s3_k2_d6", "rule": "lenience:0.5"},
    ]
    file = tmp_path / "batch.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n", encoding="utf-8")
    ran = generate("--json", "--batch", str(file), "--temperature", "0.8")
    assert ran.code == 0
    assert sorted(one["request"] for one in ran.summaries) == [0, 1, 2]
    texts = {one["request"]: one["text"] for one in ran.summaries}
    assert {one["request"]: one["output_tokens"] for one in ran.summaries} == {0: 12, 1: 9, 2: 12}
    for number, line in enumerate(lines):
        options = [part for name, value in line.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        alone = generate("--json", "--temperature", "0.8", *options)
        assert alone.summaries[0]["text"] == texts[number]


# -- the history ----------------------------------------------------------------------------------------------------


def test_a_saved_batch_is_in_the_history_with_its_rounds_and_summaries(generate, tmp_path):
    file = tmp_path / "batch.jsonl"
    file.write_text('{"prompt": "the quick"}\n{"prompt": "the end", "seed": 4}\n', encoding="utf-8")
    ran = generate("--json", "--save", "--batch", str(file))
    assert ran.code == 0
    store = Store(tmp_path / "data" / "speclens.duckdb")
    try:
        runs = Runs(store)
        stored = {one.spec.request.prompt: one for one in runs.list(RunFilter())}
        assert set(stored) == {"the quick", "the end"}
        for number, prompt in enumerate(("the quick", "the end")):
            one = stored[prompt]
            summary = next(summary for summary in ran.summaries if summary["request"] == number)
            assert (one.status, one.error) == ("done", None)
            assert one.session.startswith("command line ")
            assert one.summary is not None
            assert (one.summary.text, one.summary.output_tokens) == (summary["text"], summary["output_tokens"])
            assert one.fingerprint is not None
            assert one.fingerprint.seed == one.spec.request.seed == (0, 4)[number]
            shown = [tuple(line["committed"]) for line in ran.rounds if line["request"] == number]
            assert [kept.committed for kept in runs.rounds(one.run_id)] == shown
    finally:
        store.close()


@pytest.mark.parametrize("damage", ["cut short", "an empty file"])
def test_saving_into_a_damaged_database_is_a_sentence_before_anything_is_decoded(generate, tmp_path, damage):
    database = tmp_path / "data" / "speclens.duckdb"
    Store(database).close()
    database.write_bytes(database.read_bytes()[: 20_000 if damage == "cut short" else 0])
    left = database.read_bytes()
    ran = generate("--json", "--save")
    assert (ran.code, ran.out) == (1, "")
    assert damage in ran.err and str(database) in ran.err and "Nothing was changed." in ran.err
    assert ran.err.count("\n") == 1
    assert database.read_bytes() == left
    assert generate("--json").code == 0


def test_nothing_is_kept_without_save(generate, tmp_path):
    assert generate("--json").code == 0
    assert not (tmp_path / "data").exists()


# -- models ---------------------------------------------------------------------------------------------------------


def test_models_lists_every_preset_with_what_is_missing(call):
    ran = call("models", "--json")
    assert ran.code == 0
    assert [one["name"] for one in ran.objects] == list(PRESETS)
    for one in ran.objects:
        assert set(one) == {"name", "target", "draft", "available", "missing", "note"}
        assert one["available"] == (one["missing"] == "")
        assert one["missing"] == "" or one["missing"].endswith(".")


def test_models_is_readable_in_a_terminal(call):
    ran = call("models")
    for preset in PRESETS.values():
        assert f" {preset.name} " in ran.out
        assert preset.note in ran.out


# -- interrupts -----------------------------------------------------------------------------------------------------


def test_an_interrupt_ends_the_run_as_cancelled_with_its_whole_rounds(folder, tmp_path):
    said = tmp_path / "stderr"
    environment = os.environ | {
        "SPECLENS_CACHE": str(tmp_path / "cache"),
        "SPECLENS_DATA": str(tmp_path / "data"),
        "OMP_NUM_THREADS": "1",
    }
    options = ["--raw", "--json", "--prompt", "the quick", "--max-new-tokens", "4000", "--min-new-tokens", "4000"]
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "core", "generate", "--pair", str(folder), "--temperature", "1", *options],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()  # not communicate(), which loses what readline has read ahead
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    errors = said.read_text()
    ran = Finished(process.returncode, first + rest, errors)
    assert ran.code == 130
    assert "Traceback" not in errors
    (summary,) = ran.summaries
    assert summary["stop_reason"] == "cancelled"
    assert 0 < summary["output_tokens"] == sum(len(one["committed"]) for one in ran.rounds) < 4000
    assert [one["index"] for one in ran.rounds] == list(range(len(ran.rounds)))
    assert summary["text"] == "".join(piece for one in ran.rounds for piece in one["committed_text"])
