"""Errors that reach a person: one family, one exit code each, and every one a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.__main__ import main
from core.errors import BadInput, EngineFault, ModelUnavailable, PeerUnavailable, SpecLensError, StorageUnavailable

ROOT = Path(__file__).parents[2]
OURS = (BadInput, EngineFault, ModelUnavailable, PeerUnavailable, StorageUnavailable)


@pytest.mark.parametrize("kind", OURS)
def test_every_error_for_a_person_is_of_one_family(kind):
    assert issubclass(kind, SpecLensError)


def test_bad_input_is_a_value_error_so_that_validators_may_raise_it():
    assert issubclass(BadInput, ValueError)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(BadInput, 2), (EngineFault, 1), (ModelUnavailable, 1), (PeerUnavailable, 1), (StorageUnavailable, 1)],
)
def test_the_command_line_ends_with_one_line_and_the_errors_exit_code(kind, code, capsys):
    def run() -> None:
        raise kind("the disk is full: free some space.")

    with pytest.raises(SystemExit) as left:
        main(run)
    assert left.value.code == code
    assert capsys.readouterr() == ("", "Error: The disk is full: free some space.\n")


def test_an_error_of_the_program_itself_is_not_dressed_up_as_a_sentence():
    def run() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError):
        main(run)


def raised() -> Iterator[tuple[str, ast.expr]]:
    """Where our errors are raised in the sources, and the message they are given."""
    names = {kind.__name__ for kind in OURS}
    for path in sorted(path for folder in ("core", "storage", "pages") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Raise)
                and isinstance(call := node.exc, ast.Call)
                and ast.unparse(call.func) in names
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", call.args[0]


def ending(message: ast.expr) -> str | None:
    """The last characters that a message is sure to have; None when they come from a value."""
    last = message.values[-1] if isinstance(message, ast.JoinedStr) else message
    return last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else None


def test_every_message_that_is_written_out_ends_as_a_sentence():
    messages = list(raised())
    known = [(place, text) for place, message in messages if (text := ending(message)) is not None]
    assert len(known) > 20
    assert [place for place, text in known if not text.endswith(".")] == []
