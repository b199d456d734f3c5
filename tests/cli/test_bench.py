"""``python -m core bench`` on a tiny model."""

from __future__ import annotations

import pytest

FEW = ("--prompts", "chat", "--tokens", "8", "--runs", "1", "--count", "1", "--batches", "1", "--gammas", "2")


def test_rows_are_json_lines_with_the_peers_beside_ours(call, folder):
    done = call("bench", "--json", "--pair", str(folder), *FEW)
    assert (done.code, len(done.objects)) == (0, 9)
    ours = [one for one in done.objects if one["peer"] is None]
    assert [one["name"] for one in ours] == ["plain", "prompt_lookup chain:2", "early_exit:1 chain:2"]
    for one in ours:
        assert one["tokens_per_second"] > 0
        assert one["spread"] == [one["tokens_per_second"]] * 2
        assert one["ratio_to_assisted"] > 0
        assert one["ratio_same_linears"] > 0
        assert 0 < one["outside_forward_share"] < 1
        assert one["peak_bytes"] > 0
        assert (one["runs"], one["tokens"], one["error"]) == (1, 8, "")
        assert one["machine"]["torch"]
    assert "turn 2 of 2: early_exit:1 chain:2, transformers on our linears" in done.err


def test_without_peers_a_table_shows_ours(call, folder):
    done = call("bench", "--pair", str(folder), "--against", "none", "--drafters", "plain", *FEW)
    assert done.code == 0
    assert "× assisted" in done.out
    assert "Medians over interleaved runs (1)" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--against", "vllm"), "'vllm' is no engine to compare with: write transformers or flashspec, or none."),
        (("--against", ","), "--against is empty: name at least one."),
        (("--gammas", "2,x"), "'x' in --gammas is no whole number from 1 to 256."),
        (("--batches", "0"), "'0' in --batches is no whole number from 1 to 256."),
        (("--runs", "0"), "--runs is 0: write 1 or more."),
        (("--exit-layers", "-1"), "--exit-layers is -1: write 1 or more."),
        (("--prompts", "mmlu"), "'mmlu' is no set of prompts: write humaneval or chat."),
        (("--drafters", "eagle"), "'eagle' is no drafter that is measured"),
    ],
)
def test_what_can_not_be_measured_is_refused_in_a_sentence(call, arguments, sentence):
    done = call("bench", "--prompts", "chat", *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert done.out == ""


def test_an_exit_after_the_last_layer_and_an_overfull_context_are_refused(call, folder):
    deep = call("bench", "--pair", str(folder), *FEW, "--exit-layers", "2")
    assert (deep.code, "has 2. Choose fewer with --exit-layers" in deep.err) == (2, True)
    long = call("bench", "--pair", str(folder), "--prompts", "chat", "--tokens", "4096")
    assert (long.code, "do not fit into the context" in long.err) == (2, True)


def test_another_output_ends_with_its_sentence_after_the_rows(call, folder, monkeypatch):
    from core.bench import transformers_peer

    monkeypatch.setattr(transformers_peer, "until_end", lambda tokens, eos: (5, *tokens[1:]))
    done = call("bench", "--json", "--pair", str(folder), "--drafters", "plain", *FEW)
    assert (done.code, len(done.objects)) == (1, 3)
    assert "transformers chose token 5 at new token 0" in done.objects[1]["error"]
    assert "that is no near-tie" in done.err
    assert "(1 more, see the rows)" in done.err
