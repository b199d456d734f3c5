"""Shorthand for tests that decode: requests from one-line texts, and a run's records taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.decoding.engine import generate
from core.grammar import parse_drafter, parse_rule, parse_shape
from core.records import Ended, Round, Started, Summary
from core.results.metrics import summarise, violations
from core.types import Request, Sampling, Stops


def ask(
    prompt: str = "abcabcab",
    drafter: str = "none",
    shape: str = "none",
    rule: str = "lossless",
    *,
    temperature: float = 0.0,
    max_new_tokens: int = 24,
    stop: Sequence[str] = (),
    seed: int = 0,
    chat: bool = False,
    **sampling: Any,
) -> Request:
    """A request in the grammar of the command line."""
    return Request(
        prompt=prompt,
        chat=chat,
        sampling=Sampling(temperature=temperature, **sampling),
        stops=Stops(max_new_tokens=max_new_tokens, stop_strings=tuple(stop)),
        drafter=parse_drafter(drafter),
        shape=parse_shape(shape),
        rule=parse_rule(rule),
        seed=seed,
    )


@dataclass
class Decoded:
    """One request's records."""

    started: Started
    rounds: list[Round]
    ended: Ended

    @property
    def tokens(self) -> list[int]:
        return [token for one in self.rounds for token in one.committed]

    @property
    def summary(self) -> Summary:
        return summarise(self.started, self.rounds, self.ended)


def decode_all(requests: Sequence[Request], pair: Any, **options: Any) -> list[Decoded]:
    """Decode a batch and check that every run obeys the conservation laws and that every second has a stage."""
    events = list(generate(requests, pair, **options))
    decoded = []
    for index in range(len(requests)):
        own = [event for event in events if event.request == index]
        started, *rounds, ended = own
        assert isinstance(started, Started)
        assert isinstance(ended, Ended)
        one = Decoded(started, [event for event in rounds if isinstance(event, Round)], ended)
        assert [round_.index for round_ in one.rounds] == list(range(len(one.rounds)))
        assert violations(one.summary, one.rounds) == []
        whole = started.prefill_s + sum(round_.wall_s for round_ in one.rounds)
        assert ended.error or abs(one.summary.e2e_s - whole) < 1e-6 * (1 + whole), "a second without a stage"
        decoded.append(one)
    return decoded


def decode(request: Request, pair: Any, **options: Any) -> Decoded:
    """Decode one request alone."""
    return decode_all([request], pair, **options)[0]
