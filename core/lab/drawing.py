"""A rule's law estimated by drawing: candidates from q go through the engine's own ``verify.walk``, and the emitted
tokens are counted, with confidence bands.

The drawing uses no formula of a rule; its counts are compared with the exact law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import torch
from torch import Tensor

from core.decoding.block import block_of
from core.decoding.siblings import siblings
from core.decoding.verify import walk
from core.drafting.draft import Draft, Drawing
from core.errors import BadInput
from core.grammar import parse_rule
from core.lab.budget import expected_tokens
from core.lab.theory import Numbers, pair
from core.records import ROOT
from core.rules.table import acceptance_mass, token_rule
from core.rules.token_rule import BlockRule, TokenRule
from core.sampling.probability import draw, one_hot, without
from core.sampling.randomness import Stream, Streams

MAX_ROUNDS = 100_000
NOISE = 1e-9
"""Rounding error of an exact value, which a band of width 0 has to allow for."""

MAX_CHAINS, MAX_LISTS = 1_000, 20_000
"""Most chains and lists of siblings that are enumerated for an exact value; with more there is only the drawing."""


@dataclass(frozen=True, slots=True)
class Share:
    """One observed share with its confidence band; ``exact`` is its exact value, None where that is not enumerated."""

    seen: float
    low: float
    high: float
    exact: float | None

    @property
    def inside(self) -> bool | None:
        """Whether the exact value lies in the band."""
        return None if self.exact is None else self.low - NOISE <= self.exact <= self.high + NOISE


@dataclass(frozen=True, slots=True)
class Drawn:
    """``law``: a share a token, with bands that hold together at 95 %; ``accepted``: rounds in which a candidate of the
    first position was accepted; ``tokens_per_round`` with its own 95 % band and E[N] of the acceptance mass."""

    rounds: int
    law: tuple[Share, ...]
    accepted: Share
    tokens_per_round: Share | None

    @property
    def outside(self) -> int | None:
        """Tokens whose exact probability lies outside the band; None where there is no exact law."""
        if any(share.exact is None for share in self.law):
            return None
        return sum(share.inside is False for share in self.law)


def chain_rounds(text: str, p: Numbers, q: Numbers, gamma: int, rounds: int, seed: int) -> Drawn:
    """``rounds`` rounds of ``chain:gamma``, p and q the same at every prefix, as in the article's example.

    The law is that of the first emitted token. Raises BadInput for what is no rule, distribution or count.
    """
    target, draft, rule, streams = _opened(text, p, q, rounds, gamma, seed)
    counts, first, committed = [0] * len(target), 0, []
    for _ in range(rounds):
        tokens = tuple(draw(draft, streams.draft()) for _ in range(gamma))
        verdict = walk(_chain(tokens, draft), lambda node: target, rule, streams)
        emitted = tokens[0] if verdict.path else verdict.next_token
        counts[emitted] += 1
        first += bool(verdict.path)
        committed.append(len(verdict.path) + 1)
    mass = min(1.0, acceptance_mass(rule, target, draft))
    law = exact_law(rule, target, draft, 1, "with_replacement")
    share, tokens = mass, expected_tokens(mass, gamma)
    if isinstance(rule, BlockRule):
        share, tokens = exact_block(target, draft, gamma) or (None, None)
    return Drawn(rounds, _law(counts, rounds, law), _share(first, rounds, share), _mean(committed, tokens))


def sibling_rounds(text: str, p: Numbers, q: Numbers, count: int, drawing: Drawing, rounds: int, seed: int) -> Drawn:
    """``rounds`` positions with ``count`` siblings; deterministic ones are q's most likely tokens, best first."""
    target, draft, rule, streams = _opened(text, p, q, rounds, count, seed)
    counts, accepted = [0] * len(target), 0
    for _ in range(rounds):
        token, one_accepted = first_token(rule, target, draft, count, drawing, streams)
        counts[token] += 1
        accepted += one_accepted
    law = exact_law(rule, target, draft, count, drawing)
    share = None if law is None else exact_acceptance(rule, target, draft, count, drawing)
    return Drawn(rounds, _law(counts, rounds, law), _share(accepted, rounds, share), None)


def first_token(
    rule: TokenRule, p: Tensor, q: Tensor, count: int, drawing: Drawing, streams: Streams
) -> tuple[int, bool]:
    """The token that the engine's walk emits at one position with ``count`` siblings from q [V] against p [V], and
    whether it is one of them."""
    tokens = _candidates(q, count, drawing, streams.draft)
    verdict = walk(Draft.siblings(tokens, q, drawing), lambda node: p, rule, streams)
    return (tokens[verdict.path[0]], True) if verdict.path else (verdict.next_token, False)


def exact_law(rule: TokenRule, p: Tensor, q: Tensor, count: int, drawing: Drawing) -> Tensor | None:
    """What a position with ``count`` siblings emits [V], every list of siblings weighed; None past
    :data:`MAX_LISTS` of them."""
    if not _countable(q, count, drawing):
        return None
    law = torch.zeros_like(p)
    for tokens, weight in _lists(q, count, drawing):
        for token, share in _walked(rule, p, q, tokens, drawing, len(tokens) == count == 1):
            law += weight * share * (token if isinstance(token, Tensor) else one_hot(token, len(p)).to(p.dtype))
    return law


def exact_block(p: Tensor, q: Tensor, gamma: int) -> tuple[float, float] | None:
    """(how often block verification keeps a candidate, tokens a round) of ``chain:gamma``, every chain weighed; None
    past :data:`MAX_CHAINS`. τ is the largest i whose coin passes, so Pr[τ = i] = hᵢ Π_{j>i} (1 − hⱼ)."""
    if len(_support(q)) ** gamma > MAX_CHAINS:
        return None
    kept = length = 0.0
    for tokens, weight in _lists(q, gamma, "with_replacement"):
        above = 1.0
        accept = block_of(_chain(tokens, q), lambda node: p).accept
        for place in range(gamma, 0, -1):
            share = weight * above * accept[place - 1]
            kept, length = kept + share, length + place * share
            above *= 1.0 - accept[place - 1]
    return min(1.0, kept), 1.0 + length


def exact_acceptance(rule: TokenRule, p: Tensor, q: Tensor, count: int, drawing: Drawing) -> float:
    """How often one of ``count`` siblings is accepted."""
    return min(
        1.0,
        sum(
            weight * share
            for tokens, weight in _lists(q, count, drawing)
            for token, share in _walked(rule, p, q, tokens, drawing, len(tokens) == count == 1)
            if not isinstance(token, Tensor)
        ),
    )


def _walked(
    rule: TokenRule, p: Tensor, q: Tensor, tokens: tuple[int, ...], drawing: Drawing, one: bool
) -> Iterator[tuple[int | Tensor, float]]:
    """(accepted token, probability) of each sibling, then (what is drawn from, probability) when all were rejected."""
    first = one_hot(tokens[0], len(p)).to(p.dtype) if drawing == "deterministic" else q
    position = siblings(rule, p, first, alone=one and drawing != "deterministic")
    left, reach, current = q, 1.0, q
    for token in tokens:
        current = one_hot(token, len(p)).to(p.dtype) if drawing == "deterministic" else left
        accept = float(position.accepts(current)[token])
        yield token, reach * accept
        reach *= 1.0 - accept
        if reach <= 0.0:
            return
        position.reject(token, current)
        if drawing == "without_replacement":
            left = current = without(left, token)
    yield position.redraw(current), reach


def _lists(q: Tensor, count: int, drawing: Drawing) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every list of siblings with its probability."""
    if drawing == "deterministic":
        yield _best(q, count), 1.0
        return

    def grown(tokens: tuple[int, ...], left: Tensor, weight: float) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(tokens) == count or (drawing == "without_replacement" and set(tokens) >= _support(q)):
            yield tokens, weight
            return
        for token in sorted(_support(left)):
            after = without(left, token) if drawing == "without_replacement" else left
            yield from grown((*tokens, token), after, weight * float(left[token]))

    yield from grown((), q, 1.0)


def _chain(tokens: tuple[int, ...], q: Tensor) -> Draft:
    parents = tuple(range(ROOT, len(tokens) - 1))
    return Draft.drawn(tokens, parents, (q,) * len(tokens))


def _candidates(q: Tensor, count: int, drawing: Drawing, stream: Stream) -> tuple[int, ...]:
    if drawing == "deterministic":
        return _best(q, count)
    tokens: list[int] = []
    left = q
    for _ in range(count if drawing == "with_replacement" else min(count, len(_support(q)))):
        tokens.append(draw(left, stream()))
        if drawing == "without_replacement":
            left = without(left, tokens[-1])
    return tuple(tokens)


def _best(q: Tensor, count: int) -> tuple[int, ...]:
    order = sorted(_support(q), key=lambda token: (-float(q[token]), token))
    return tuple(order[:count])


def _support(q: Tensor) -> set[int]:
    return {token for token, share in enumerate(q.tolist()) if share > 0.0}


def _countable(q: Tensor, count: int, drawing: Drawing) -> bool:
    return drawing == "deterministic" or len(_support(q)) ** count <= MAX_LISTS


def _opened(
    text: str, p: Numbers, q: Numbers, rounds: int, count: int, seed: int
) -> tuple[Tensor, Tensor, TokenRule, Streams]:
    if not 1 <= rounds <= MAX_ROUNDS:
        raise BadInput(f"{rounds} rounds can't be drawn: take 1 to {MAX_ROUNDS:,}.")
    if not 1 <= count <= 64:
        raise BadInput(f"{count} candidates can't be drafted: take 1 to 64.")
    target, draft = pair(p, q)
    return target, draft, token_rule(parse_rule(text)), Streams.seeded(seed)


def _law(counts: list[int], rounds: int, exact: Tensor | None) -> tuple[Share, ...]:
    known = [None] * len(counts) if exact is None else exact.tolist()
    return tuple(_share(count, rounds, value, len(counts)) for count, value in zip(counts, known, strict=True))


def wilson(count: int, samples: int, confidence: float = 0.95, together: int = 1) -> tuple[float, float]:
    """Bounds of a share that was seen ``count`` times in ``samples`` (Wilson's score interval).

    ``together``: how many such intervals hold at once with this confidence. Bonferroni's correction over the cells of
    one multinomial makes it Goodman's simultaneous interval. Raises BadInput for impossible counts or levels.
    """
    if samples < 1 or not 0 <= count <= samples or not 0.0 < confidence < 1.0 or together < 1:
        raise BadInput(f"{count} of {samples} at confidence {confidence} for {together} shares is no observation.")
    z = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / (2.0 * together))
    share, extra = count / samples, z * z / samples
    middle = share + extra / 2.0
    half = z * sqrt(share * (1.0 - share) / samples + extra / samples / 4.0)
    low = 0.0 if count == 0 else max(0.0, (middle - half) / (1.0 + extra))  # exact at the ends, where floats aren't
    return low, 1.0 if count == samples else min(1.0, (middle + half) / (1.0 + extra))


def _share(count: int, rounds: int, exact: float | None, together: int = 1) -> Share:
    low, high = wilson(count, rounds, together=together)
    return Share(count / rounds, low, high, exact)


def _mean(values: list[int], exact: float | None) -> Share:
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    half = 1.959964 * (spread / len(values)) ** 0.5
    return Share(mean, mean - half, mean + half, exact)
