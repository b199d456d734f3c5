"""Model text made visible and inert: white space and control characters as glyphs, markup escaped.

Model output is untrusted: it may hold tags, bidirectional overrides, zero-width characters and lone surrogates. It
reaches the page only through :func:`chip_text` and :func:`flow_text`.
"""

from __future__ import annotations

import unicodedata
from html import escape

SPACE, NEWLINE, TAB = "␣", "⏎", "⇥"
"""Glyphs of white space. The space is an open box, since few fonts have U+2420 (the letters SP)."""
ZERO_WIDTH_JOINER = "\u200d"


def chip_text(text: str) -> str:
    """A token's text as escaped HTML on one line: ``" the\\n"`` → ``␣the⏎``."""
    return escape("".join(_glyph(char) for char in text), quote=True)


def plain_glyphs(text: str) -> str:
    """Text as from :func:`chip_text` but not escaped, for places that take text rather than HTML."""
    return "".join(_glyph(char) for char in text)


def flow_text(text: str) -> str:
    """Running text as escaped HTML for ``white-space: pre-wrap``, with invisible characters as glyphs.

    Ordinary spaces stay spaces; a line break shows its glyph and breaks. A zero-width joiner stays, since it joins
    emoji.
    """
    parts = []
    for char in text:
        if char == "\n":
            parts.append(f'<i class="sl-ws">{NEWLINE}</i>\n')
        elif char == "\t":
            parts.append(f'<i class="sl-ws">{TAB}</i>\t')
        elif char == " " or char == ZERO_WIDTH_JOINER:
            parts.append(char)
        else:
            glyph = _glyph(char)
            parts.append(escape(char, quote=True) if glyph == char else f'<i class="sl-ws">{escape(glyph)}</i>')
    return "".join(parts)


def _glyph(char: str) -> str:
    """The character as the page shows it."""
    if char == " ":
        return SPACE
    if char == "\n":
        return NEWLINE
    if char == "\t":
        return TAB
    if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}:
        return f"⟨U+{ord(char):04X}⟩"
    return char
