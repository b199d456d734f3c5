"""Chains grow on the device: nothing is read back while drafting, and what comes out is what host reads gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import core.decoding.assembly
import core.drafting.growers
import core.drafting.growing
from core.cache.graphs import CudaRecorder
from core.cache.slots import SlotModel, SlotTarget
from core.cache.target import Candidates
from core.decoding.engine import generate
from core.drafting.base import DraftRequest
from core.drafting.draft import Draft
from core.drafting.early_exit import SplitTarget
from core.drafting.growing import grow_together
from core.drafting.small_model import SmallModel
from core.records import Round
from core.sampling.distributions import Distributions
from core.sampling.randomness import Streams
from core.types import ChainShape, Sampling
from tests.helpers.decoding import ask
from tests.helpers.networks import network, real_pair

DRAFTERS = ["model", "early_exit:2", "early_exit:2, recomputed"]
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0},
    "truncated": {"temperature": 0.8, "top_k": 9, "top_p": 0.9},
    "penalised": {"temperature": 1.0, "repetition_penalty": 1.3, "min_new_tokens": 6},
    "greedy and penalised": {"repetition_penalty": 1.3, "min_new_tokens": 6},
    "min-p for the draft too": {"temperature": 1.0, "min_p": 0.05, "truncate_draft": True},
}
READS = {"item", "tolist", "numpy", "cpu", "__int__", "__float__", "__bool__", "__index__", "nonzero", "equal"}
READING = {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "unique", "_unique2", "masked_select"}


class NoCalls(TorchFunctionMode):
    """Refuses what a caller reads a tensor's values with."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        assert name not in READS, f"the host reads a tensor by {name}"
        return func(*args, **(kwargs or {}))


class NoOperations(TorchDispatchMode):
    """Refuses operations whose result, or its shape, depends on values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in READING, f"the host reads a tensor by aten::{name}"
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        masks = [one for one in indices if isinstance(one, Tensor) and one.dtype == torch.bool]
        assert not masks, "the host counts a mask"
        return func(*args, **(kwargs or {}))


@contextmanager
def no_host_reads() -> Iterator[None]:
    with NoCalls(), NoOperations():
        yield


def growing_under(monkeypatch: pytest.MonkeyPatch, guard: Any) -> list[int]:
    """Every draft from here on grows inside ``guard()``; the list counts them."""
    grown: list[int] = []

    def watched(growers: Any, score: Any) -> None:
        with guard():
            grow_together(growers, score)
        grown.append(len(growers))

    monkeypatch.setattr(core.drafting.growing, "grow_together", watched)
    return grown


def requests(drafter: str, **sampling: Any) -> list[Any]:
    name = drafter.removesuffix(", recomputed")
    return [
        ask("abcabcab", name, "chain:4", "lossless", seed=1, max_new_tokens=8, **sampling),
        ask("ba", name, "chain:3", "lossless", seed=2, max_new_tokens=10, **sampling),
    ]


@pytest.fixture(scope="module")
def pair() -> Any:
    return real_pair(network(1), network(2, layers=1), eos=(3,))


def decoded(drafter: str, pair: Any, monkeypatch: pytest.MonkeyPatch, **sampling: Any) -> list[Round]:
    if drafter.endswith("recomputed"):
        monkeypatch.setattr(core.decoding.assembly, "shares_activations", lambda network, layers: False)
    events = list(generate(requests(drafter, **sampling), pair))
    return [timeless(event) for event in events if isinstance(event, Round)]


def timeless(one: Round) -> Round:
    times = ("draft_s", "verify_s", "state_s", "other_s", "wall_s", "ended_at_s", "distortion_s")
    return replace(one, **dict.fromkeys(times, 0.0))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_nothing_is_read_back_while_chains_of_a_batch_grow(pair, drafter, sampling, monkeypatch):
    grown = growing_under(monkeypatch, no_host_reads)
    rounds = decoded(drafter, pair, monkeypatch, **sampling)
    assert sum(grown) >= len(rounds) > 3


READERS = {
    "an argmax as a number": lambda row: int(row.argmax()),
    "a list": lambda row: row.tolist(),
    "a mask": lambda row: row[row > 0],
    "places": lambda row: row.nonzero(),
    "a condition": lambda row: bool((row > 0).any()),
    "inside a library": lambda row: row.unique(),
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_the_guard_sees_every_way_of_reading(read):
    with pytest.raises(AssertionError, match="the host"), no_host_reads():
        read(torch.rand(4))


class HostChain(core.drafting.growers.ChainGrower):
    """Slow reference: a chain whose every token, fault and score the host reads at its step."""

    def __init__(self, depth: int, distributions: Any, prefix: Sequence[int], stream: Any) -> None:
        super().__init__(depth, distributions, prefix, stream)
        self.before = list(prefix)
        self.tokens: list[int] = []
        self.score: list[float] = []
        self.growth: list[Tensor] = []

    def ids(self, nodes: Sequence[int]) -> Any:
        return [self.tokens[node] for node in nodes]

    def grow(self, logits: Sequence[Tensor]) -> None:
        assert core.drafting.growers.logits_fault(logits[0], "draft", 0) is None
        scores = self.distributions.penalised(logits[0], self.before)
        q = self.distributions.draft(scores)
        cumulative = torch.cumsum(q.double(), dim=-1)
        token = int(torch.searchsorted(cumulative, self.stream() * cumulative[-1], right=True))
        own = self.distributions.growth(scores)
        if self.distributions.keeps_growth:
            self.growth.append(own)
        self.q.append(q)
        self.tokens.append(token)
        self.score.append(float(own[token]))
        self.before.append(token)

    def finish(self) -> tuple[Draft, list[int]]:
        growth = self.growth if self.distributions.keeps_growth else None
        draft = Draft.drawn(self.tokens, self.parents, self.q, self.score, growth=growth)
        return draft, list(range(len(self.tokens)))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rounds_equal_those_of_a_chain_that_the_host_reads_step_by_step(pair, drafter, sampling, monkeypatch):
    """Tokens, fates, coins, thresholds, q and scores, to the last bit."""
    rounds = decoded(drafter, pair, monkeypatch, **sampling)
    monkeypatch.setattr(core.drafting.growers, "ChainGrower", HostChain)
    assert decoded(drafter, pair, monkeypatch, **sampling) == rounds


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize("cut", [False, True], ids=["small model", "split target"])
def test_chains_grow_and_are_scored_on_a_device_that_holds_no_values(cut, sampling, monkeypatch):
    """The meta device has shapes only: reading a value, or computing with a tensor left on the host, raises there."""
    with torch.device("meta"):
        shapes = network(1)
    monkeypatch.setattr(
        core.drafting.growers.ChainGrower,
        "_read",
        lambda one, growth: ([1] * len(growth), [0.5] * len(growth), [False] * len(growth), [False] * len(growth)),
    )
    target = SplitTarget(shapes, 2, 16, 2, 40) if cut else SlotTarget(shapes, 16, 2, 40)
    drafter = target if isinstance(target, SplitTarget) else SmallModel(SlotModel(shapes, 16, 2, 40))
    prompts = {0: [1, 2, 3, 4], 1: [5, 6]}
    settings = Sampling(**{"temperature": 0.0, **sampling})
    distributions = Distributions.of(settings, frozenset([3]), 4, target.device)
    for slot, prompt in prompts.items():
        target.open(slot, prompt[:-1])
        drafter.open(slot, prompt[:-1])
    stream = Streams.seeded(0).draft
    shape = ChainShape(gamma=3)
    wanted = [DraftRequest(slot, prompt, shape, 9, distributions, stream) for slot, prompt in prompts.items()]
    drafts = drafter.propose(wanted)
    assert [draft.proposal(2, 16, target.device).device.type for draft in drafts] == ["meta", "meta"]
    batch = [Candidates(slot, prompts[slot][-1], draft.tokens, draft.parents) for slot, draft in enumerate(drafts)]
    assert [one.rows.shape for one in target.score(batch)] == [(4, 16), (4, 16)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=list(SAMPLINGS))
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_on_cuda_drafting_makes_the_host_wait_for_nothing(drafter, sampling, monkeypatch):
    device = torch.device("cuda", torch.cuda.current_device())
    one = real_pair(network(1).to(device), network(2, layers=1).to(device), eos=(3,))
    one.device = device
    decoded(drafter, one, monkeypatch, **sampling)  # allocates and warms up

    @contextmanager
    def strict() -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    record = CudaRecorder.record

    def recording(self: CudaRecorder, work: Any) -> Any:
        """Recording waits for the device, once per bucket: that is not the loop's."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("default")
        try:
            return record(self, work)
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    monkeypatch.setattr(CudaRecorder, "record", recording)
    growing_under(monkeypatch, strict)
    assert decoded(drafter, one, monkeypatch, **sampling)
