"""Costs that must not grow with context or output: ``python -m benchmarks.growth``, on a small random Llama.

Measured in one process:

* **state**: time to keep an accepted path after a context of 128 and of 4,096 tokens, for a chain (nothing moves) and
  for a tree whose accepted path is not the first branch (cache rows move). Rounds alternate between the contexts.
* **overhead**: time of a round outside the network's forward pass, near 64 and near 2,000 tokens of output of the same
  runs, for plain decoding and prompt lookup, greedy and sampled.

Prints medians of processor time in microseconds, and their ratio. A round's overhead depends on its numbers of
candidates and of visited positions, so only rounds of one kind are compared: equal numbers of drafted candidates and of
committed tokens, the kind that is most frequent at both lengths.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from core.cache.slots import SlotTarget
from core.cache.target import Candidates
from core.decoding.engine import cycles
from core.drafting.draft import Draft
from core.grammar import parse_drafter, parse_shape
from core.models.attention import GROUPED
from core.records import ROOT, Round
from core.types import Request, Sampling, Stops

CLOCK = time.thread_time
"""Processor time of the engine's thread, without other work of the machine."""
VOCAB = 49_152
CONTEXTS = (128, 4096)
OUTPUTS = (64, 2000)
WINDOW = 32
"""Number of rounds before each output length that are compared."""
PROMPT = 64

CHAIN = Draft.chosen((5, 6, 7, 8), (ROOT, 0, 1, 2))
TREE = Draft.chosen((5, 6, 7, 8, 9), (ROOT, ROOT, 1, 2, 0))
PATHS = {"state, chain": (CHAIN, [0, 1, 2]), "state, tree with a moving path": (TREE, [1, 2, 3])}
SETTINGS = {
    "overhead, plain greedy": ("none", "none", 0.0),
    "overhead, plain sampled": ("none", "none", 1.0),
    "overhead, prompt lookup chain:4 greedy": ("prompt_lookup", "chain:4", 0.0),
    "overhead, prompt lookup s3_k2_d6 greedy": ("prompt_lookup", "s3_k2_d6", 0.0),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """One comparison: medians in microseconds at ``small`` and at ``large`` tokens."""

    name: str
    small: int
    large: int
    small_us: float
    large_us: float
    ratio: float


class Timed:
    """A network that sums the seconds of its forward passes in ``spent``."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.spent = 0.0

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is the network's own."""
        return getattr(self._network, name)

    def __call__(self, **inputs: Any) -> Any:
        """One forward pass, timed."""
        start = CLOCK()
        try:
            return self._network(**inputs)
        finally:
            self.spent += CLOCK() - start


class Numbers:
    """A codec without a tokenizer: the prompt's text is its number of tokens, a token's text is its id."""

    vocab = VOCAB
    eos: frozenset[int] = frozenset()

    def encode(self, request: Request) -> list[int]:
        """The number of different token ids that the prompt states."""
        return list(range(100, 100 + int(request.prompt)))

    def piece(self, token: int) -> str:
        """The token's id as text."""
        return f"{token} "

    def stream(self) -> Any:
        """A stream in which every token completes its own text."""
        return SimpleNamespace(step=self.piece, flush=lambda: "")


def small_network() -> Any:
    """A Llama of two layers and hidden size 64, with seeded random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    config._attn_implementation = GROUPED
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def state(network: Any, rounds: int) -> Iterator[Growth]:
    """Times of keeping a path after each context."""
    for name, (draft, path) in PATHS.items():
        room = rounds * (len(path) + 1) + len(draft.tokens) + 1
        targets = {size: SlotTarget(network, VOCAB, 1, size + room) for size in CONTEXTS}
        for size, target in targets.items():
            target.open(0, [100 + i % 1000 for i in range(size)])
        seconds: dict[int, list[float]] = {size: [] for size in CONTEXTS}
        for _ in range(rounds):
            for size, target in targets.items():
                target.score([Candidates(0, 4, draft.tokens, draft.parents)])
                start = CLOCK()
                target.keep(0, path)
                seconds[size].append(CLOCK() - start)
        yield _growth(name, CONTEXTS, seconds)


def overhead(network: Any, runs: int) -> Iterator[Growth]:
    """Overhead of rounds of the same runs near each output length."""
    for name, (drafter, shape, temperature) in SETTINGS.items():
        kinds: dict[int, dict[Kind, list[float]]] = {size: {} for size in OUTPUTS}
        for seed in range(runs):
            request = Request(
                prompt=str(PROMPT),
                sampling=Sampling(temperature=temperature),
                stops=Stops(max_new_tokens=OUTPUTS[1] + WINDOW),
                drafter=parse_drafter(drafter),
                shape=parse_shape(shape),
                seed=seed,
                measure_distortion=False,
            )
            for size, rounds in _outside(network, request).items():
                for kind, seconds in rounds:
                    kinds[size].setdefault(kind, []).append(seconds)
        few, many = (kinds[size] for size in OUTPUTS)
        kind = max(few.keys() & many.keys(), key=lambda one: min(len(few[one]), len(many[one])), default=None)
        if kind is None:
            raise SystemExit(f"{name}: no kind of round occurs at both output lengths; ask for more --runs.")
        yield _growth(name, OUTPUTS, {size: kinds[size][kind] for size in OUTPUTS})


Kind = tuple[int, int]
"""A round's numbers of drafted candidates and committed tokens."""


def _outside(network: Any, request: Request) -> dict[int, list[tuple[Kind, float]]]:
    """Kind and seconds outside the forward of the last rounds before each output length."""
    timed = Timed(network)
    found: dict[int, list[tuple[Kind, float]]] = {size: [] for size in OUTPUTS}
    tokens, known = 0, 0.0
    for events in cycles([request], _pair(timed), clock=CLOCK):
        forward, known = timed.spent - known, timed.spent
        for event in events:
            if isinstance(event, Round):
                tokens += len(event.committed)
                for size in OUTPUTS:
                    if tokens <= size:
                        kind = (event.drafted, len(event.committed))
                        found[size].append((kind, event.wall_s - forward))
    return {size: rounds[-WINDOW:] for size, rounds in found.items()}


def _pair(network: Any) -> Any:
    model = SimpleNamespace(name="small", network=network, context=8192, vocab=VOCAB)
    return SimpleNamespace(
        name="small", target=model, draft=None, text=Numbers(), vocab=VOCAB, device=torch.device("cpu")
    )


def _growth(name: str, sizes: tuple[int, int], seconds: dict[int, list[float]]) -> Growth:
    small, large = (median(seconds[size]) * 1e6 for size in sizes)
    return Growth(name, *sizes, small, large, large / small)


def main() -> None:
    """Measures and prints."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="What must not grow.")
    arguments.add_argument("--rounds", type=int, default=100, help="rounds a state time is the median of")
    arguments.add_argument("--runs", type=int, default=3, help="runs an overhead is the median of")
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of a forward")
    arguments.add_argument("--json", action="store_true", help="a JSON object a line")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    network = small_network()
    measured = (*state(network, given.rounds), *overhead(network, given.runs))
    for one in measured:
        if given.json:
            print(json.dumps(asdict(one)))
        else:
            at = f"{one.small:,} tokens {one.small_us:8.1f} µs   {one.large:,} tokens {one.large_us:8.1f} µs"
            print(f"{one.name:42s} {at}   ratio {one.ratio:.2f}")


if __name__ == "__main__":
    main()
