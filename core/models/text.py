"""Conversion between text and token ids: encoding prompts, streaming output, and showing a single token.

A :class:`TextCodec` wraps one fast tokenizer. Output text is built by :class:`TextStream` with
``tokenizers.decoders.DecodeStream``, so the pieces of a run always add up to the tokenizer's own decoding of all its
tokens. Tokenizers without a ``tokenizers`` backend are refused at load (``core/models/load.py``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tokenizers import AddedToken, Encoding, Tokenizer
from tokenizers.decoders import DecodeStream

from core.errors import BadInput
from core.models.chat import UNSEEN, free_marks, render
from core.types import Request

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")

_TYPED_CONTROL = (
    "The chat template changes the prompt so that typed text would become a control token: turn the template off, or "
    "remove the names of control tokens from the prompt."
)


class FastTokenizer(Protocol):
    """The part of a transformers fast tokenizer that is used here."""

    @property
    def backend_tokenizer(self) -> Tokenizer: ...
    @property
    def all_special_ids(self) -> list[int]: ...

    chat_template: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


class TextCodec:
    """Encoder of prompts and decoder of tokens for one tokenizer.

    ``vocab`` is the number of ids that can be emitted (0 … vocab−1); ``eos`` holds the ids that end a run;
    ``tokenizer_hash`` and ``template_hash`` are SHA-256 hex digests (``template_hash`` of "" without a template).
    """

    def __init__(self, tokenizer: FastTokenizer, eos: Iterable[int] = (), vocab: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        # A tokenizer.json may hold a length limit from training, which would silently shorten prompts.
        self._backend.no_truncation()
        self._backend.no_padding()
        added = self._backend.get_added_tokens_decoder()
        self._special = {i: token.content for i, token in added.items() if token.special}
        for i in tokenizer.all_special_ids:
            self._special.setdefault(i, self._backend.id_to_token(i) or "")
        self._literal = {i for i, token in added.items() if not token.special}
        self._control = set(self._special) | {i for i in self._literal if len(added[i].content.strip()) > 1}
        unseen = self._control.intersection(self._backend.encode(UNSEEN, add_special_tokens=False).ids)
        self._unknown = {i: (self._backend.id_to_token(i) or "").casefold() for i in unseen}
        self._plain: tuple[str, Tokenizer] | None = None
        ids = self._backend.get_vocab(with_added_tokens=True).values()
        self.vocab = min(max(ids) + 1, vocab or max(ids) + 1)
        self.eos = frozenset(i for i in eos if i < self.vocab)
        self.tokenizer_hash = _sha256(self._backend.to_str())
        self.template_hash = _sha256(str(tokenizer.chat_template or ""))
        decoder = self._backend.decoder
        self._decoder = decoder.__getstate__().decode() if decoder is not None else ""
        self._reference = self._backend.encode("a", add_special_tokens=False).ids[-1:]
        self._pieces: dict[int, str] = {}

    @property
    def has_template(self) -> bool:
        """True if prompts can be wrapped as chat turns."""
        return bool(self._tokenizer.chat_template)

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the tokens that give no text."""
        return tuple(self._special.values())

    # -- text → tokens ------------------------------------------------------------------------------------------

    def encode(self, request: Request) -> list[int]:
        """Token ids of the request's prompt, at least one.

        With ``request.chat`` and a chat template, the prompt is one user turn, and control tokens typed in it (such as
        ``<|im_end|>``) are encoded as plain text: a user can't close their own turn. A raw prompt is encoded as it is,
        control tokens included, with the tokenizer's own leading tokens (BOS) added.

        Raises BadInput if the prompt is empty, not valid text, refused by the template, or outside the vocabulary.
        """
        if not request.prompt.strip():
            raise BadInput("The prompt is empty: type something to decode.")
        try:
            request.prompt.encode()
        except UnicodeEncodeError as error:
            half = request.prompt[error.start]
            raise BadInput(
                f"The prompt holds half a character (U+{ord(half):04X} at position {error.start}), "
                "which no tokenizer can read: remove it."
            ) from None
        chat = request.chat and self.has_template
        ids = self._encode_chat(request.prompt) if chat else self._backend.encode(request.prompt).ids
        if not ids:
            raise BadInput("The prompt has no tokens after the tokenizer's normalisation: type some text.")
        outside = next((i for i in ids if i >= self.vocab), None)
        if outside is not None:
            raise BadInput(
                f"The prompt holds the token {self._backend.id_to_token(outside)!r} (id {outside}), but the model "
                f"knows only ids below {self.vocab}: remove it."
            )
        return ids

    def _encode_chat(self, prompt: str) -> list[int]:
        return self.encode_turns([{"role": "user", "content": prompt}])

    def encode_turns(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of chat turns (``role``, ``content``) with the start of the answer.

        Whatever the template does with the contents, what was typed is text and the template's own control tokens
        are control tokens. Raises BadInput when the template makes that impossible.
        """
        turns = render(self._tokenizer, messages)
        encoding = self._backend.encode(turns.text, add_special_tokens=False)
        own = self._controls(turns.blank, self._backend.encode(turns.blank, add_special_tokens=False))
        typed = [one for one in turns.typed or () if len(one)]
        found = self._controls(turns.text, encoding)
        kept = [one for one in found if not one.covers(turns.text, typed)]
        if [one.token for one in kept] != [one.token for one in own]:
            raise BadInput(_TYPED_CONTROL)
        return encoding.ids if kept == found else self._apart(turns.text, kept)

    def _controls(self, text: str, encoding: Encoding) -> list[_Control]:
        """Control tokens of ``text``. The token for unknown characters is one only where its name is written."""
        found = []
        for token, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            named = token not in self._unknown or text[begin:end].strip().casefold() == self._unknown[token]
            if token in self._control and named:
                found.append(_Control(token, begin, end))
        return found

    def _apart(self, text: str, kept: Sequence[_Control]) -> list[int]:
        """Ids of ``text`` in which ``kept`` are the only control tokens, and every other name of one is text.

        Each kept one is replaced by a mark that splits the text as a control token does, so that the text beside it is
        encoded as beside the token (with or without a leading "▁", say).
        """
        mark, plain = self._marker(text)
        parts, at = [], 0
        for one in kept:
            parts += [text[at : one.begin], mark]
            at = one.end
        ids = plain.encode("".join(parts) + text[at:], add_special_tokens=False).ids
        if self._control.difference(self._unknown).intersection(ids):  # a name in the vocabulary itself
            raise BadInput(_TYPED_CONTROL)
        place, tokens = plain.token_to_id(mark), iter(kept)
        return [next(tokens).token if token == place else token for token in ids]

    def _marker(self, text: str) -> tuple[str, Tokenizer]:
        """A character that ``text`` doesn't hold, and the tokenizer to which it is the only control token."""
        if self._plain is None or self._plain[0] in text:
            (mark,) = free_marks(1, text)
            described = json.loads(self._backend.to_str())
            for one in described["added_tokens"]:
                one["special"] = one["id"] in self._control  # all that the switch below turns into text
            plain = Tokenizer.from_str(json.dumps(described))
            plain.encode_special_tokens = True
            plain.add_tokens([AddedToken(mark, normalized=False)])
            self._plain = mark, plain
        return self._plain

    # -- tokens → text ------------------------------------------------------------------------------------------

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a whole output; special tokens give no text, invalid bytes U+FFFD."""
        return self._backend.decode(list(tokens), skip_special_tokens=True)

    def stream(self) -> TextStream:
        """A new output stream, for one run."""
        return TextStream(self)

    def piece(self, token: int) -> str:
        """One token for display: valid UTF-8 as it is, other bytes as ⟨e2⟩, special tokens by their names, ids that
        are not in the tokenizer as ⟨id 300⟩."""
        if token not in self._pieces:
            self._pieces[token] = self._make_piece(token)
        return self._pieces[token]

    def _make_piece(self, token: int) -> str:
        name = self._backend.id_to_token(token)
        if name is None:
            return f"⟨id {token}⟩"
        if token in self._special or token in self._literal:
            return name
        raw = self._bytes(name)
        if raw is None:
            return self._continued([token])
        return _ESCAPED_BYTE.sub(lambda m: f"⟨{ord(m[0]) - 0xDC00:02x}⟩", raw.decode("utf-8", "surrogateescape"))

    def _bytes(self, name: str) -> bytes | None:
        """The bytes that a vocabulary entry encodes, or None if it is text."""
        if '"ByteLevel"' in self._decoder:
            try:
                return bytes(_BYTE_OF_CHARACTER[c] for c in name)
            except KeyError:  # not in the byte alphabet: the decoder uses the entry as it is
                return name.encode()
        fallback = _BYTE_FALLBACK.fullmatch(name) if '"ByteFallback"' in self._decoder else None
        return bytes([int(fallback[1], 16)]) if fallback else None

    def _continued(self, tokens: Sequence[int]) -> str:
        """Text of ``tokens`` after other text (a decoder may trim leading white space)."""
        before = self._backend.decode(self._reference, skip_special_tokens=True)
        return self._backend.decode([*self._reference, *tokens], skip_special_tokens=True)[len(before) :]


class TextStream:
    """Output text token by token: ``step`` returns the text that a token completed, ``flush`` the truncated rest.

    The strings add up to ``TextCodec.decode`` of the same tokens, with one exception: a byte-fallback tokenizer decodes
    a sequence of byte tokens with an invalid end wholly to U+FFFD, but characters of it that were already returned
    stay. A step costs the same at any length of output, except within a sequence of invalid bytes.
    """

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._pending: list[int] = []
        self._shown = False

    def step(self, token: int) -> str:
        """Text completed by this token; "" while a character is split and for special tokens."""
        self._pending.append(token)
        try:
            text = self._decoder.step(self._codec._backend, token)
        except Exception:  # the library's only signal that text already returned would change
            text = self._codec._continued(self._pending)
            self._decoder = DecodeStream(ids=list(self._pending), skip_special_tokens=True)
        if text:
            self._pending.clear()
            self._shown = True
        return text or ""

    def flush(self) -> str:
        """The rest of a truncated output: incomplete characters as U+FFFD. The stream is empty afterwards."""
        rest = self._codec._continued(self._pending) if self._shown else self._codec.decode(self._pending)
        self._pending.clear()
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._shown = False
        return rest


@dataclass(frozen=True, slots=True)
class _Control:
    """A control token and the characters that it was read from, ``begin`` … ``end``."""

    token: int
    begin: int
    end: int

    def covers(self, text: str, typed: Iterable[range]) -> bool:
        """Whether any of its characters is typed, but for the white space that a token may swallow beside its name."""
        found = text[self.begin : self.end]
        first = self.begin + len(found) - len(found.lstrip())
        last = self.begin + len(found.rstrip())
        return any(first < one.stop and one.start < last for one in typed)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _byte_alphabet() -> dict[str, int]:
    """The byte-level alphabet (GPT-2): printable Latin-1 maps to itself, all other bytes to U+0100 and up."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(hidden)}


_BYTE_OF_CHARACTER = _byte_alphabet()
