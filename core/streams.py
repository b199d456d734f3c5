"""Text that comes in and goes out: bytes of any encoding, terminals that can't show every character, closed pipes."""

from __future__ import annotations

import codecs
import io
import locale
import re
import sys
from typing import IO

from core.errors import BadInput

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that reorder text: a terminal would execute them."""

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decoded(data: bytes, source: str, fallback: str | None = None) -> str:
    """Text of ``data``: by its byte order mark, as UTF-8, else in the encoding ``fallback``. Line ends stay.

    Raises BadInput, naming ``source`` and the first byte that is not text.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if fallback is not None and codecs.lookup(fallback).name not in ("utf-8", "ascii"):
            return decoded(data.decode(fallback, "strict").encode(), source)
        raise BadInput(
            f"{source} is no text in {encoding.upper()}: byte {error.start + 1:,} is {data[error.start]:#04x}. "
            "Save it as UTF-8."
        ) from None


def standard_input() -> str:
    """All of standard input, as UTF-8 or else in the terminal's own encoding. Raises BadInput as :func:`decoded`."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        return sys.stdin.read()
    try:
        return decoded(stream.read(), "standard input", locale.getpreferredencoding(False))
    except UnicodeDecodeError:
        raise BadInput("standard input is no text in UTF-8 nor in the terminal's encoding.") from None


def visible(text: str) -> str:
    """``text`` with control characters as escapes (``\\x1b``), so that a terminal shows and doesn't execute them."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def show_anything(*streams: IO[str]) -> None:
    """Make text streams write characters that their encoding lacks as escapes instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def holds_every_character(stream: IO[str]) -> bool:
    """Whether the stream's encoding has all of Unicode."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
