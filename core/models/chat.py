"""Chat turns as text: the template's output, and which parts of it a person typed.

A template is a program: it may repeat, trim, move or drop what it is given. So it is run twice, once with a marker in
place of each text that was typed; where the markers come out, typed text comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import BadInput

ATTEMPTS = 5
"""Runs of a template that reads the clock until two agree."""

UNSEEN = chr(0xF0000)
"""Markers are characters from here on: private-use ones, which no case or white-space filter changes."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Rendered chat turns. ``typed``: ranges of characters in ``text`` that were typed, in order; None if the template
    changed what was typed, so that its parts can't be told apart. ``blank``: the same turns with markers for what was
    typed, which shows what the template itself wrote."""

    text: str
    typed: tuple[range, ...] | None
    blank: str


def render(tokenizer: Any, messages: Sequence[dict[str, str]]) -> Turns:
    """Messages (``role``, ``content``) by the tokenizer's chat template, with the start of the answer.

    Raises BadInput if the template refuses the messages or writes half a character.
    """
    written = _applied(tokenizer)
    marks = free_marks(len(messages), str(tokenizer.chat_template) + "".join(one["content"] for one in messages))
    text, blank, typed = "", "", None
    for _ in range(ATTEMPTS):  # a template that reads the clock may write another second
        text = written(messages)
        blank = written([_marked(one, mark) for one, mark in zip(messages, marks, strict=True)])
        joined, typed = _filled(blank, dict(zip(marks, (one["content"].strip() for one in messages), strict=True)))
        if joined == text:
            return Turns(text, typed, blank)
    return Turns(text, None, blank)


def _applied(tokenizer: Any) -> Callable[[Sequence[dict[str, str]]], str]:
    def apply(messages: Sequence[dict[str, str]]) -> str:
        try:
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates are programs of the model's author and may raise anything
            raise BadInput(f"The model's chat template refuses this prompt ({error}): turn the template off.") from None
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"The model's chat template writes half a character (U+{ord(text[error.start]):04X}), which no "
                "tokenizer can read: turn the template off."
            ) from None
        return text

    return apply


def free_marks(count: int, taken: str) -> list[str]:
    """``count`` characters that ``taken`` doesn't hold. Raises BadInput when every private character is taken."""
    free = (chr(code) for code in range(ord(UNSEEN), 0x110000) if chr(code) not in taken and code & 0xFFFE != 0xFFFE)
    marks = [mark for mark, _ in zip(free, range(count), strict=False)]
    if len(marks) < count:
        raise BadInput("The prompt holds every private-use character of Unicode: turn the chat template off.")
    return marks


def _marked(message: dict[str, str], mark: str) -> dict[str, str]:
    """A message whose content is a marker, with the white space that surrounds the content."""
    content = message["content"]
    middle = content.strip()
    before, _, after = content.partition(middle) if middle else (content, "", "")
    return message | {"content": before + mark + after if middle else content}


def _filled(blank: str, contents: dict[str, str]) -> tuple[str, tuple[range, ...]]:
    """The text with each marker replaced by its content, and the ranges of the contents."""
    parts, typed, at = [], [], 0
    for character in blank:
        part = contents.get(character, character)
        if character in contents:
            typed.append(range(at, at + len(part)))
        parts.append(part)
        at += len(part)
    return "".join(parts), tuple(typed)
