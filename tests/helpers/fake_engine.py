"""A loader and an engine for browser tests: rounds by script, no torch. The prompt's first word says what happens.

``slow``: a tenth of a second a round · ``quick``: none · ``hostile``: markup as tokens · ``tree``: tree rounds ·
``race``: rounds of the shape asked for, a tree's cheaper on its own clock · ``fail``: breaks after two rounds ·
``cursed``: after one, with markup in its sentence · ``gone``: refused while loading · anything else: a quick chain that
ends by itself.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from core.errors import EngineFault, ModelUnavailable
from core.grammar import format_drafter, format_shape
from core.records import Event, Fate, Round
from core.types import NoDrafter, PairSpec, Request, TreeShape
from tests.helpers import sample
from tests.helpers.sample_walk import walked

PATTERNS: tuple[tuple[Fate, ...], ...] = (
    ("accepted", "accepted", "rejected", "unreached"),
    ("accepted", "accepted", "accepted", "accepted"),
    ("rejected", "unreached", "unreached", "unreached"),
    (),
)
WORDS = (" the", " quick", " brown", " fox", "\n", " jumps", "\tover", " é")


def load_pair(spec: PairSpec, progress: Callable[[str, float], None]) -> PairSpec:
    """Loads nothing, in four steps."""
    for step in range(4):
        progress("loading weights …", step / 4)
        time.sleep(0.05)
    return spec


def cycles(
    requests: Sequence[Request], pair: PairSpec, *, should_stop: Callable[[], bool] = lambda: False
) -> Generator[tuple[Event, ...], None, None]:
    """The scripted rounds of one request, each a cycle of its own (as core.decoding.engine.cycles)."""
    request = requests[0]
    word = request.prompt.split()[0].lower()
    if word == "gone":
        raise ModelUnavailable("The pair is not on this machine: choose another.")
    plain = isinstance(request.drafter, NoDrafter)
    drafting = f"{format_drafter(request.drafter)} {format_shape(request.shape)}"
    print_ = replace(
        sample.fingerprint(drafting), prompt_hash=f"{zlib.crc32(request.prompt.encode())}", seed=request.seed
    )
    yield (replace(sample.started(), fingerprint=print_),)
    done: list[Round] = []
    tokens = 0
    while tokens < request.stops.max_new_tokens:
        if should_stop():
            yield (sample.ended(done, "cancelled"),)
            return
        time.sleep({"slow": 0.1, "race": 0.05, "quick": 0.0}.get(word, 0.01))
        made = walked(request.shape, len(done)) if word == "race" and not plain else _round(word, plain, len(done))
        each_s = 0.03 if isinstance(request.shape, TreeShape) else 0.043
        done.append(replace(made, ended_at_s=0.2 + each_s * (len(done) + 1)))
        tokens += len(made.committed)
        yield (done[-1],)
        if word == "cursed":
            raise EngineFault(f"The token {sample.HOSTILE} can't be scored: try precision float32.")
        if word == "fail" and len(done) == 2:
            raise EngineFault("The logits of round 2 at node 1 are not finite: try precision float32.")
    yield (sample.ended(done, "max_new_tokens"),)


def _round(word: str, plain: bool, index: int) -> Round:
    if plain:
        return sample.plain(index, WORDS[index % len(WORDS)])
    if word == "tree":
        return sample.tree(index)
    fates = PATTERNS[index % len(PATTERNS)]
    if not fates:
        return sample.plain(index)
    text = sample.HOSTILE if word == "hostile" else WORDS[index % len(WORDS)]
    return sample.chain(fates, index, text)
