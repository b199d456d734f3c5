"""The script over every architecture: what it finds for some, and what it writes and returns."""

from __future__ import annotations

import sys

import pytest

from scripts import architectures
from scripts.architectures import Outcome, outcome, table, tried


@pytest.mark.parametrize(
    ("kind", "result", "said"),
    [
        ("llama", "equal", "plain, prompt lookup chain:3, prompt lookup s3_k2_d6, early exit s3_k2_d6"),
        ("falcon", "equal", "plain"),
        ("mamba", "refused", "The model mamba (mamba) keeps layers of the kinds linear_attention"),
        ("gpt_neo", "refused", "gpt_neo can't decode here: one step past its window of 24 tokens"),
        ("xlm", "refused", "The model xlm is of a kind (xlm) that doesn't generate text token by token"),
    ],
)
def test_an_architecture_is_equal_in_every_mode_or_refused_in_a_sentence(kind, result, said):
    found = tried(kind)
    assert found.kind == result
    assert found.text.startswith(said)


def test_tokens_that_differ_from_the_librarys_are_found(monkeypatch):
    monkeypatch.setattr("core.models.probe._worst", lambda *_: 0.0)  # admitted without proof
    assert tried("gpt_neo").kind == "differs"


def test_a_process_that_dies_or_takes_too_long_is_a_row(monkeypatch):
    monkeypatch.setattr(architectures, "tried", lambda kind: sys.exit(kind))
    assert outcome("x").kind != "equal"
    monkeypatch.setattr(architectures, "LIMIT_S", 0.2)
    monkeypatch.setattr(architectures, "tried", lambda kind: __import__("time").sleep(60))
    assert outcome("x") == Outcome("too slow", "no result in 0 s")


def test_the_page_counts_and_holds_every_architecture():
    page = table({"a": Outcome("equal", "plain"), "b": Outcome("refused", "no | way"), "c": Outcome("not built", "X")})
    assert "equal: 1 · refused: 1 · differs: 0 · not built or too slow: 1" in page
    assert "| b | refused | no / way |" in page


@pytest.mark.parametrize(("kind", "code"), [("equal", 0), ("refused", 0), ("differs", 1)])
def test_a_difference_is_the_exit_code(monkeypatch, capsys, kind, code):
    monkeypatch.setattr(architectures, "outcome", lambda name: Outcome(kind, "text"))
    monkeypatch.setattr(sys, "argv", ["architectures.py", "llama"])
    assert architectures.main() == code
    assert f"llama: {kind}: text" in capsys.readouterr().out
