"""Bytes of any encoding come in as text or as a sentence; control characters go out as escapes."""

from __future__ import annotations

import codecs
import io

import pytest

from core.errors import BadInput
from core.streams import decoded, holds_every_character, show_anything, visible


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é\r\nb\r".encode(), "é\r\nb\r"),
        (codecs.BOM_UTF8 + "é".encode(), "é"),
        ("é\n".encode("utf-16"), "é\n"),
        (b"", ""),
    ],
)
def test_text_is_read_by_its_mark_or_as_utf_8_and_keeps_its_line_ends(data, text):
    assert decoded(data, "x") == text


def test_the_terminals_own_encoding_is_tried_after_utf_8():
    assert decoded(b"caf\xe9", "x", "latin-1") == "café"


@pytest.mark.parametrize(
    ("data", "byte"), [(b"\xff", "1 is 0xff"), (b"ab\xc3", "3 is 0xc3"), (b"a\xed\xa0\x80", "2 is 0xed")]
)
def test_bytes_that_are_no_text_are_named(data, byte):
    with pytest.raises(BadInput, match=f"standard input is no text in UTF-8: byte {byte}. Save it as UTF-8."):
        decoded(data, "standard input", "utf-8")


def test_control_characters_are_shown_and_not_executed():
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\x1b[2J\x07\r\x9b1m\x7f") == r"\x1b[2J\x07\r\x9b1m\x7f"
    assert visible("\u202eabc") == r"\u202eabc"
    assert visible("é 🎉 ⟨e2⟩") == "é 🎉 ⟨e2⟩"


def test_a_stream_that_lacks_a_character_shows_its_escape():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    assert not holds_every_character(stream)
    show_anything(stream)
    stream.write("é🎉")
    stream.flush()
    assert raw.getvalue() == rb"\xe9\U0001f389"
