"""The exact law of what the engine emits, by replaying every combination of draws and coins with its probability."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

import core.decoding.verify
import core.drafting.growers
from core.decoding.engine import generate
from core.drafting.draft import Draft
from core.grammar import parse_rule
from core.records import Ended, Round, Verdict
from core.rules.table import token_rule
from core.sampling.distributions import Distributions
from core.sampling.randomness import Streams
from core.types import Request
from tests.helpers.fakes import FakePair

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


def first_token_law(
    draft_of: Callable[[Branching], Draft], p: Tensor, rule: str, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """Law of the first token that ``walk`` emits; ``draft_of`` makes a draft with a branching ``draw``."""
    law = [0.0] * len(p)

    def run(one: Branching) -> tuple[Verdict, Draft]:
        monkeypatch.setattr(core.decoding.verify, "draw", one.draw)
        draft = draft_of(one)
        streams = Streams(draft=lambda: 0.5, coin=one.coin, redraw=lambda: 0.5)
        return core.decoding.verify.walk(draft, lambda node: p, token_rule(parse_rule(rule)), streams), draft

    for (verdict, draft), one in branches(run):
        weight = one.weight
        for trial in verdict.trials:
            weight *= trial.accept_prob if trial.u == 0.0 else 1.0 - trial.accept_prob
        law[draft.tokens[verdict.path[0]] if verdict.path else verdict.next_token] += weight
    return law


def reference_law(request: Request, pair: FakePair) -> dict[tuple[int, ...], float]:
    """Product of processed target distributions over every output, ended by EOS or the limit."""
    prompt = pair.text.encode(request)
    distributions = Distributions.of(request.sampling, pair.text.eos, len(prompt), pair.device)
    law = {}

    def extend(output: tuple[int, ...], weight: float) -> None:
        if len(output) == request.stops.max_new_tokens or (output and output[-1] in pair.text.eos):
            law[output] = weight
            return
        p = distributions.target(logits(pair, [*prompt, *output]), [*prompt, *output])
        for token in range(pair.vocab):
            if float(p[token]) > 0.0:
                extend((*output, token), weight * float(p[token]))

    extend((), 1.0)
    return law


def logits(pair: FakePair, prefix: list[int]) -> torch.Tensor:
    """Next-token logits of the target, by a fresh forward pass or straight from the table."""
    network = pair.target.network
    if isinstance(network, LlamaForCausalLM):
        with torch.no_grad():
            return network(input_ids=torch.tensor([prefix])).logits[0, -1]
    return torch.tensor(network.table(tuple(prefix))).log()
