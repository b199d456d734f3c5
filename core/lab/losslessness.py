"""A statistical test of a rule: do the tokens that the engine's walk emits follow the law that they should?

The walk draws its candidates, coins and redraws from seeded streams, as in a run. Its tokens are counted and compared
with the law by Pearson's chi-square. A lossless rule is tested against the target p, a lossy one against the law that
it induces. :func:`samples_for` gives the sample that finds a stated wrong law with a stated power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy import stats
from torch import Tensor

from core.decoding.distortion import distance
from core.drafting.draft import Drawing
from core.errors import BadInput
from core.grammar import format_rule, parse_rule
from core.lab.drawing import first_token
from core.lab.theory import Numbers, pair
from core.rules.catalogue import is_lossless
from core.rules.table import induced, token_rule
from core.rules.token_rule import TokenRule
from core.sampling.randomness import Streams

LEVEL = 1e-3
"""Significance level: the chance that a sound walk fails the test."""

MIN_EXPECTED = 5.0
"""Expected count below which tokens are counted together: the chi-square approximation needs at least this many."""

MAX_SAMPLES = 1_000_000


@dataclass(frozen=True, slots=True)
class Agreement:
    """Outcome of one test. ``p_value``: how often a sound walk looks at least this wrong; ``impossible``: tokens
    emitted that the law gives no probability."""

    samples: int
    statistic: float
    degrees: int
    p_value: float
    impossible: int
    level: float = LEVEL

    @property
    def lossless(self) -> bool:
        """True when no impossible token was emitted and the p-value reaches the level."""
        return self.impossible == 0 and self.p_value >= self.level


def agreement(counts: Sequence[int], law: Sequence[float], level: float = LEVEL) -> Agreement:
    """Pearson's chi-square of how often each token was emitted against its probability in ``law``.

    Raises BadInput when there is nothing to test: no sample, or lengths that differ.
    """
    if len(counts) != len(law) or sum(counts) == 0:
        raise BadInput(
            f"there are {len(counts)} counts of {sum(counts)} tokens for a law of {len(law)}: nothing to test."
        )
    total, mass = sum(counts), math.fsum(law)
    impossible = sum(count for count, probability in zip(counts, law, strict=True) if probability <= 0.0)
    cells = _pooled([(count, total * part / mass) for count, part in zip(counts, law, strict=True) if part > 0.0])
    statistic = math.fsum((count - expected) ** 2 / expected for count, expected in cells)
    degrees = len(cells) - 1
    p_value = float(stats.chi2.sf(statistic, degrees)) if degrees else 1.0
    return Agreement(total, statistic, degrees, 0.0 if impossible else p_value, impossible, level)


def _pooled(cells: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """(count, expected count) of each cell, the rarest tokens merged until every cell is expected often enough."""
    found: list[tuple[float, float]] = []
    count, expected = 0.0, 0.0
    for more, wanted in sorted(cells, key=lambda cell: cell[1]):
        count, expected = count + more, expected + wanted
        if expected >= MIN_EXPECTED:
            found.append((count, expected))
            count, expected = 0.0, 0.0
    if expected and found:
        found[-1] = (found[-1][0] + count, found[-1][1] + expected)
    elif expected:
        found.append((count, expected))
    return found


def power(law: Sequence[float], wrong: Sequence[float], samples: int, level: float = LEVEL) -> float:
    """Chance that a test with ``samples`` tokens of ``wrong`` rejects ``law``: Pearson's statistic is then roughly
    noncentral chi-square. Where ``wrong`` leaves the law's support, an impossible token decides as well."""
    escaped = math.fsum(w for part, w in zip(law, wrong, strict=True) if part <= 0.0)
    pairs = [(part, w) for part, w in zip(law, wrong, strict=True) if part > 0.0]
    effect = samples * math.fsum((w - part) ** 2 / part for part, w in pairs)
    if len(pairs) < 2 or effect <= 0.0:
        found = 0.0
    else:
        found = float(stats.ncx2.sf(stats.chi2.isf(level, len(pairs) - 1), len(pairs) - 1, effect))
    return max(found, 1.0 - (1.0 - escaped) ** samples)


def samples_for(law: Sequence[float], wrong: Sequence[float], wanted: float = 0.9, level: float = LEVEL) -> int:
    """Fewest tokens of ``wrong`` with which ``law`` is rejected with power ``wanted``; raises BadInput where no
    :data:`MAX_SAMPLES` do."""
    low, high = 1, MAX_SAMPLES
    if power(law, wrong, high, level) < wanted:
        raise BadInput(f"{high:,} tokens don't tell these two laws apart with power {wanted:g}: they are too close.")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(law, wrong, middle, level) >= wanted else (middle + 1, high)
    return low


Emit = Callable[[Streams], int]
"""Draws candidates, walks them and returns the first emitted token."""


def emitter(rule: TokenRule, p: Tensor, q: Tensor, *, siblings: int = 1, drawing: Drawing = "with_replacement") -> Emit:
    """A function that runs the engine's walk at one position: ``siblings`` candidates drawn from q [V] (for
    deterministic drawing, its most probable tokens) against p [V]."""
    return lambda streams: first_token(rule, p, q, siblings, drawing, streams)[0]


def counted(emit: Emit, vocab: int, samples: int, seed: int = 0) -> list[int]:
    """How often each of ``vocab`` tokens was emitted first in ``samples`` walks of one seeded set of streams."""
    streams = Streams.seeded(seed)
    counts = [0] * vocab
    for _ in range(samples):
        counts[emit(streams)] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The test of one rule at one p and q. ``lossless``: it was tested against p, else against its induced law, which
    lies at total variation ``tv`` from p."""

    rule: str
    lossless: bool
    tv: float
    test: Agreement

    @property
    def follows(self) -> bool:
        """True when the emitted tokens follow the law that the rule was tested against."""
        return self.test.lossless

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        law = "p" if self.lossless else "its own law"
        lossy = "" if self.lossless else f", {self.tv:.4f} (TV) away from p: a lossy rule that does what it states"
        found = self.test
        degrees = "1 degree" if found.degrees == 1 else f"{found.degrees} degrees"
        measured = f"{found.samples:,} tokens: χ² = {found.statistic:.2f} with {degrees} of freedom"
        if self.follows:
            return f"{self.rule} follows {law}{lossy}. {measured}, p-value {found.p_value:.3g}."
        if found.impossible:
            times = "1 token" if found.impossible == 1 else f"{found.impossible:,} tokens"
            return f"{self.rule} does not follow {law}: {times} of {found.samples:,} have probability 0 there."
        return f"{self.rule} does not follow {law}. {measured}, p-value {found.p_value:.3g} below {found.level:g}."


def verdict(text: str, p: Numbers, q: Numbers, samples: int, seed: int = 0) -> Verdict:
    """The rule that ``text`` names, tested with ``samples`` tokens that its walk of one sampled candidate emits.

    Raises:
        BadInput: no such rule, what is no distribution, or a number of samples that can't be drawn.
    """
    if not 1 <= samples <= MAX_SAMPLES:
        raise BadInput(f"{samples:,} tokens can't be drawn: take 1 to {MAX_SAMPLES:,}.")
    spec = parse_rule(text)
    target, draft = pair(p, q)
    rule, lossless = token_rule(spec), is_lossless(spec)
    law = target if lossless else induced(rule, target, draft)
    counts = counted(emitter(rule, target, draft), len(target), samples, seed)
    _, tv, _ = distance(law, target)
    return Verdict(format_rule(spec), lossless, tv, agreement(counts, law.clamp_min(0.0).tolist()))
