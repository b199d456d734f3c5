"""A loader and an engine that do what the prompt says, for tests of worker and jobs: no torch, no clock.

The prompt is a JSON object (:class:`Script`), the pair's name chooses how loading goes: ``gated:FIFO`` waits for a byte
while loading, ``missing`` is refused.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import EngineFault, ModelUnavailable
from core.records import Ended, Event, Fingerprint, Node, Round, Started, StopReason
from core.types import ChainShape, PairSpec, PromptLookupDrafter, Request, RunSpec

LOADER = "tests.helpers.fakes_worker:load_pair"
ENGINE = "tests.helpers.fakes_worker:cycles"
COMMAND = (sys.executable, "-m", "core.worker", "--loader", LOADER, "--engine", ENGINE)

PATIENCE_S = 60.0
"""What a test waits for something that must happen before it fails."""

PREFILL_S = 0.01
ROUND_S = 0.003


@dataclass(frozen=True)
class Script:
    """``fault`` happens in round ``at``; ``closed`` is a file that is made when the engine's generator is closed."""

    rounds: int = 3
    gate: str = ""
    fault: str = ""
    at: int = 0
    noisy: bool = False
    closed: str = ""
    padding: str = ""

    def spec(self, pair: str = "fake") -> RunSpec:
        """The run that asks for this."""
        prompt = json.dumps(dataclasses.asdict(self), ensure_ascii=False)
        request = Request(prompt=prompt, chat=False, drafter=PromptLookupDrafter(), shape=ChainShape(gamma=2))
        return RunSpec(pair=PairSpec(name=pair), request=request)


@dataclass
class FakePair:
    """What the fake engine needs of a pair: how many loads this process has seen."""

    name: str
    loads: int


class Gate:
    """The test's end of a pair of FIFOs, at which rounds (or a load) of another process wait."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        for fifo in (self.path, self.path + ARRIVALS):
            os.mkfifo(fifo)
        # Both ways, so that opening waits for nobody and the other end sees no end of file before close.
        self._go: int | None = os.open(self.path, os.O_RDWR)
        self._arrivals = os.open(self.path + ARRIVALS, os.O_RDWR)

    def reached(self, times: int = 1) -> None:
        """Wait until somebody has come to the gate once more (this many times)."""
        for _ in range(times):
            readable, _, _ = select.select([self._arrivals], [], [], PATIENCE_S)
            assert readable, "nobody came to the gate"
            os.read(self._arrivals, 1)

    def open(self, times: int = 1) -> None:
        """Let the next ones pass."""
        assert self._go is not None
        os.write(self._go, b"." * times)

    def close(self) -> None:
        """Let all pass from now on."""
        if self._go is not None:
            os.close(self._go)
            os.close(self._arrivals)
            self._go = None


ARRIVALS = ".arrivals"


class _Visitor:
    """The other end: ``wait`` says that it has come and waits for its turn."""

    def __init__(self, path: str) -> None:
        self._arrivals = os.open(path + ARRIVALS, os.O_WRONLY)
        self._go = os.open(path, os.O_RDONLY)

    def wait(self) -> None:
        with suppress(BrokenPipeError):  # the gate is closed: nobody counts any more
            os.write(self._arrivals, b".")
        os.read(self._go, 1)

    def close(self) -> None:
        os.close(self._arrivals)
        os.close(self._go)


_loads = 0


def load_pair(spec: PairSpec, progress: Callable[[str, float], None]) -> FakePair:
    """Load as the pair's name says."""
    global _loads
    if spec.name == "missing":
        raise ModelUnavailable("The pair missing is not on this machine: choose another.")
    progress("loading weights …", 0.5)
    if spec.name.startswith("gated:"):
        with closing(_Visitor(spec.name.removeprefix("gated:"))) as gate:
            gate.wait()
    progress("loading weights …", 1.0)
    _loads += 1
    return FakePair(spec.name, _loads)


def cycles(
    requests: Sequence[Request], pair: FakePair, *, should_stop: Callable[[], bool] = lambda: False
) -> Generator[tuple[Event, ...], None, None]:
    """Play the script: one of two candidates is accepted in every round; the text begins with ``L<loads>``."""
    script = Script(**json.loads(requests[0].prompt))
    gate = _Visitor(script.gate) if script.gate else None
    text = ""
    index = 0

    def ended(reason: StopReason) -> Ended:
        return Ended(request=0, stop_reason=reason, text=text, e2e_s=PREFILL_S + ROUND_S * index)

    try:
        yield (Started(request=0, prompt_tokens=len(script.padding) + 1, prefill_s=PREFILL_S, fingerprint=FINGERPRINT),)
        while True:
            if should_stop():
                yield (ended("cancelled"),)
                return
            if gate is not None:
                gate.wait()
            if script.noisy:
                _make_noise()
            if script.fault and script.at == index:
                _break(script.fault)
            record = fake_round(index, f"L{pair.loads} " if index == 0 else "a")
            index += 1
            text += "".join(record.committed_text)
            if index == script.rounds:
                yield record, ended("max_new_tokens")
                return
            yield (record,)
    finally:
        if gate is not None:
            gate.close()
        if script.closed:
            Path(script.closed).touch()


def fake_round(index: int, first: str = "a") -> Round:
    """A round that obeys the conservation laws: one candidate accepted, one rejected, one correction."""
    nodes = (
        Node(5, first, -1, 1, "accepted", p=0.1 + 0.2, q=0.5, score=0.5, accept_prob=0.6, u=0.25),
        Node(6, "x", 0, 2, "rejected", p=0.1, q=0.9, score=0.9, accept_prob=0.1, u=0.75),
    )
    return Round(
        request=0,
        index=index,
        nodes=nodes,
        committed=(5, 7),
        committed_text=(first, "b"),
        source="correction",
        positions=(),
        draft_s=0.001,
        verify_s=0.002,
        state_s=0.0,
        other_s=0.0,
        wall_s=ROUND_S,
        ended_at_s=PREFILL_S + ROUND_S * (index + 1),
    )


FINGERPRINT = Fingerprint(
    target="fake",
    target_hash="t",
    draft=None,
    draft_hash=None,
    precision="float32",
    tokenizer_hash="k",
    template_hash="m",
    sampling="s",
    reference_law="s",
    stops="n",
    cache_policy="c",
    drafting="prompt_lookup",
    device="cpu",
    versions={},
    seed=0,
    prompt_hash="p",
    prompt_ids_hash="i0",
    end_tokens="2",
    batch=1,
)


def _make_noise() -> None:
    print('{"kind": "ended"} from print', flush=True)
    sys.stdout.write("from sys.stdout\n")
    os.write(1, b"from the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert sys.stdin is None or sys.stdin.read() == "", "a library can read the protocol's input"


def _break(fault: str) -> None:
    match fault:
        case "nan":
            raise EngineFault("Round 1 met a row of NaN at node 0: choose another precision.")
        case "unexpected":
            raise KeyError("layer\nsecond line")
        case "memory":
            raise MemoryError("9 GB wanted")
        case "exit":
            print("the driver is gone", file=sys.stderr, flush=True)
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise AssertionError(f"no such fault: {fault}")
