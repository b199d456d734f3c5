"""Errors that reach a person: one family, one exit code each, and every one a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import field_validator

from core.__main__ import main
from core.errors import BadInput, EngineFault, ModelUnavailable, PeerUnavailable, SpecLensError, StorageUnavailable
from core.types import Spec, valid

ROOT = Path(__file__).parents[2]
EXIT_CODES = {BadInput: 2, EngineFault: 1, ModelUnavailable: 1, PeerUnavailable: 1, StorageUnavailable: 1}


class Even(Spec):
    """A specification whose validator raises one of our errors."""

    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, number: int) -> int:
        if number % 2:
            raise BadInput(f"{number} is odd: give an even number")
        return number


def test_bad_input_that_a_validator_raises_reaches_the_person_as_its_sentence():
    with pytest.raises(BadInput) as refused:
        valid(Even, number=3)
    assert str(refused.value) == "3 is odd: give an even number."


def test_every_error_of_ours_has_an_exit_code_below():
    assert set(SpecLensError.__subclasses__()) == set(EXIT_CODES)


@pytest.mark.parametrize(("kind", "code"), EXIT_CODES.items())
def test_the_command_line_ends_with_one_line_and_the_errors_exit_code(kind, code, capsys):
    def run() -> None:
        raise kind("the disk is full: free some space.")

    with pytest.raises(SystemExit) as left:
        main(run)
    assert left.value.code == code
    assert capsys.readouterr() == ("", "Error: The disk is full: free some space.\n")


def test_an_error_of_the_program_itself_is_raised_unchanged():
    def run() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError):
        main(run)


def raised() -> Iterator[tuple[str, ast.expr]]:
    """Where our errors are raised in the sources, and the message they are given."""
    names = {kind.__name__ for kind in EXIT_CODES}
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


def test_every_literal_message_ends_as_a_sentence():
    messages = list(raised())
    known = [(place, text) for place, message in messages if (text := ending(message)) is not None]
    assert len(known) > 20
    assert [place for place, text in known if not text.endswith(".")] == []
