"""The exact law of what the engine emits, by replaying every combination of draws and coins with its probability."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import core.decoding.verify
import core.drafting.growers
from core.decoding.engine import generate
from core.records import Ended, Round
from core.sampling.randomness import Streams
from core.types import Request

ALMOST_ONE = math.nextafter(1.0, 0.0)


class Branching:
    """Replays a list of choices, then takes the first option and notes how many there were."""

    def __init__(self, choices: list[int]) -> None:
        self.choices = choices
        self.options: list[int] = []
        self.weight = 1.0

    def choose(self, options: int) -> int:
        place = len(self.options)
        self.options.append(options)
        if place == len(self.choices):
            self.choices.append(0)
        return self.choices[place]

    def draw(self, distribution: Tensor, u: float) -> int:
        """Stands in for ``core.sampling.probability.draw``: every token of positive probability is one branch."""
        tokens = distribution.nonzero()[:, 0].tolist()
        token = tokens[self.choose(len(tokens))]
        self.weight *= float(distribution[token])
        return token

    def drawn(self, distribution: Tensor, u: float) -> Tensor:
        """Stands in for ``core.sampling.probability.drawn``."""
        return torch.tensor(self.draw(distribution, u))

    def coin(self) -> float:
        """One branch accepts whatever can be accepted, the other rejects whatever can be rejected."""
        return 0.0 if self.choose(2) == 0 else ALMOST_ONE


def branches(run: Callable[[Branching], Any]) -> Iterator[tuple[Any, Branching]]:
    """``run`` under every combination of choices, depth first."""
    choices: list[int] = []
    while True:
        one = Branching(choices)
        yield run(one), one
        choices = one.choices[: len(one.options)]
        while choices and choices[-1] + 1 == one.options[len(choices) - 1]:
            choices.pop()
        if not choices:
            return
        choices[-1] += 1


def emitted_law(request: Request, pair: Any, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], float]:
    """Probability of every output that decoding ``request`` can end with; sums to 1 up to float32."""
    request = request.model_copy(update={"measure_distortion": False})  # measuring changes no token, only takes time
    law: dict[tuple[int, ...], float] = defaultdict(float)

    def run(one: Branching) -> tuple[tuple[int, ...], float]:
        monkeypatch.setattr(core.drafting.growers, "drawn", one.drawn)
        monkeypatch.setattr(core.decoding.verify, "draw", one.draw)
        streams = Streams(draft=lambda: 0.5, coin=one.coin, redraw=lambda: 0.5)
        events = list(generate([request], pair, streams=lambda _: streams))
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert ended.error is None, ended.error
        rounds = [event for event in events if isinstance(event, Round)]
        weight = one.weight
        for node in (node for one_round in rounds for node in one_round.nodes):
            if node.u is not None and node.accept_prob is not None:
                weight *= node.accept_prob if node.u == 0.0 else 1.0 - node.accept_prob
        return tuple(token for one_round in rounds for token in one_round.committed), weight

    for (tokens, weight), _ in branches(run):
        law[tokens] += weight
    return {tokens: weight for tokens, weight in law.items() if weight > 0.0}
