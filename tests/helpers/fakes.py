"""Table-driven fakes: a pair whose next-token logits are a function of the prefix, over the real slot cache.

:class:`PrefixNetwork` stores token ids as cache keys and reads every node's prefix back through the cache rows and the
mask that it was given: if a node saw a sibling, missed an ancestor or read a dead row, it would look up another prefix.
``load_pair`` is a loader for the worker: a small vocabulary with markup, control characters and split emoji in it.
"""

from __future__ import annotations

import codecs
import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from core.sampling.randomness import Streams
from core.types import PairSpec, Request

Table = Callable[[tuple[int, ...]], Sequence[float]]
"""Probabilities of the next token after a prefix."""


class PrefixNetwork:
    """Looks like a causal LM to the engine; ``delay_s`` is slept per pass."""

    def __init__(self, table: Table, vocab: int, delay_s: float = 0.0) -> None:
        self.table = table
        self.config = LlamaConfig(num_hidden_layers=1, vocab_size=vocab)
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.delay_s = delay_s
        self.passes = 0

    def named_modules(self) -> list[tuple[str, Any]]:
        """None: no part of it is replaced."""
        return []

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, cache: Any, **_: Any) -> Any:
        """Logits [B, N, V] of every query from the prefix that it can see."""
        self.passes += 1
        time.sleep(self.delay_s)
        tokens, positions = cache.update(input_ids[:, None, :, None].float(), position_ids[:, None, :, None].float(), 0)
        batch, nodes = input_ids.shape
        rows = torch.empty(batch, nodes, self.config.vocab_size)
        for b in range(batch):
            for n in range(nodes):
                seen = (attention_mask[b, 0, n] == 0).nonzero()[:, 0]
                order = positions[b, 0, seen, 0].argsort()
                prefix = tuple(int(token) for token in tokens[b, 0, seen, 0][order])
                rows[b, n] = torch.tensor(
                    [-math.inf if p == 0 else p if math.isnan(p) else math.log(p) for p in self.table(prefix)]
                )
        return SimpleNamespace(logits=rows)


@dataclass
class FakeText:
    """A codec over a list of token strings; ids are places in it. Strings may be parts of a character in bytes."""

    vocabulary: Sequence[str | bytes]
    eos: frozenset[int] = frozenset()
    tokenizer_hash: str = "fake"
    template_hash: str = "fake"

    @property
    def vocab(self) -> int:
        return len(self.vocabulary)

    def encode(self, request: Request) -> list[int]:
        """Single characters that are tokens, as ids; others are token 0."""
        place = {token: i for i, token in enumerate(self.vocabulary)}
        return [place.get(character, 0) for character in request.prompt]

    def piece(self, token: int) -> str:
        text = self.vocabulary[token]
        return text if isinstance(text, str) else "".join(f"⟨{byte:02x}⟩" for byte in text)

    def stream(self) -> FakeStream:
        return FakeStream(self)


class FakeStream:
    """Completes characters across byte tokens."""

    def __init__(self, text: FakeText) -> None:
        self.text = text
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: int) -> str:
        if token in self.text.eos:
            return ""
        piece = self.text.vocabulary[token]
        return self.decoder.decode(piece if isinstance(piece, bytes) else piece.encode())

    def flush(self) -> str:
        return self.decoder.decode(b"", final=True)


@dataclass
class FakePair:
    """What the engine reads of a pair."""

    name: str
    target: Any
    draft: Any
    text: FakeText
    vocab: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    precision: str = "float32"


LETTERS = "abcdefghijklmnop"


def fake_pair(
    target: Table,
    draft: Table | None = None,
    *,
    vocabulary: Sequence[str | bytes] = LETTERS[:3],
    eos: Sequence[int] = (),
    context: int = 4096,
    delay_s: float = 0.0,
) -> FakePair:
    """A pair of table-driven models over ``vocabulary``."""

    def model(name: str, table: Table) -> SimpleNamespace:
        network = PrefixNetwork(table, len(vocabulary), delay_s)
        return SimpleNamespace(
            name=name,
            content_hash=name,
            network=network,
            context=context,
            vocab=len(vocabulary),
            linears="torch",
            rereads_at=None,
        )

    return FakePair(
        name="fake",
        target=model("fake target", target),
        draft=model("fake draft", draft) if draft else None,
        text=FakeText(vocabulary, frozenset(eos)),
        vocab=len(vocabulary),
    )


def always(*probabilities: float) -> Table:
    """The same distribution after every prefix."""
    return lambda prefix: probabilities


def hashed(vocab: int, seed: int = 0, sharpness: float = 2.0) -> Table:
    """A different, reproducible distribution after every prefix."""

    def table(prefix: tuple[int, ...]) -> Sequence[float]:
        digest = hashlib.blake2b(repr((seed, prefix)).encode(), digest_size=vocab).digest()
        weights = [math.exp(sharpness * (byte / 128.0 - 1.0)) for byte in digest]
        return [weight / sum(weights) for weight in weights]

    return table


def mixed(first: Table, second: Table, share: float) -> Table:
    """``share`` of the first table's probability, the rest of the second's."""
    return lambda prefix: [share * a + (1 - share) * b for a, b in zip(first(prefix), second(prefix), strict=True)]


def scripted(draft: Sequence[float] = (), coin: Sequence[float] = (), redraw: Sequence[float] = ()) -> Streams:
    """Streams that give these numbers in order and fail when asked for more."""
    return Streams(*(iter(values).__next__ for values in (draft, coin, redraw)))


HOSTILE = (
    *LETTERS,
    " ",
    "\n",
    "</span><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    "**bold** [link](http://example.invalid)",
    "\x1b[31m",
    "\u202e",
    b"\xf0\x9f",
    b"\x98\x80",
    "&amp;",
    "=1+1",
    "$x^2$",
)
"""Tokens that a page must show inertly: markup, markdown, control characters, a split emoji, a formula."""


def load_pair(spec: PairSpec, progress: Callable[[str, float], None] = lambda message, share: None) -> FakePair:
    """A worker's loader: hostile tokens, a draft that agrees often; ``SPECLENS_FAKE_DELAY`` seconds per pass."""
    progress("loading the fake pair", 0.5)
    size = len(HOSTILE)
    target = hashed(size, seed=1)
    draft = mixed(target, hashed(size, seed=2), 0.7)
    delay_s = float(os.environ.get("SPECLENS_FAKE_DELAY", "0"))
    return fake_pair(target, draft, vocabulary=HOSTILE, context=100_000, delay_s=delay_s)
