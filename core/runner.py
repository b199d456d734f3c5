"""One run from its spec to its end, in whatever process: load the pair, iterate the engine, turn faults into sentences.

Imports neither torch nor the engine itself: both come with the loader and the engine that are named, so that the app's
process, which only needs the types, stays small.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol, cast

from core.errors import BadInput, EngineFault, SpecLensError
from core.protocol import Happening, Loading, RunRound, RunStarted
from core.records import Ended, Event, Round, Started, StopReason
from core.types import PairSpec, Request, RunSpec

LOG = logging.getLogger("speclens.engine")

LOADER = "core.models:load_pair"
ENGINE = "core.engine:generate"

Loader = Callable[[PairSpec, Callable[[str, float], None]], Any]
Tell = Callable[[Happening], None]


class Engine(Protocol):
    """As core.engine.generate: a Started, Rounds, and an Ended per request; asks ``should_stop`` before each round."""

    def __call__(
        self, requests: Sequence[Request], pair: Any, /, *, should_stop: Callable[[], bool]
    ) -> Iterator[Event]: ...


class _Cancelled(Exception):
    """Unwinds a load that nobody waits for any more; never leaves this module."""


def resolve(name: str) -> Any:
    """The object that ``module:attribute`` names; raises BadInput when there is none."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise BadInput(f"{name!r} names no function: write module:function, such as {LOADER}.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"{name!r} can't be imported ({error}): name a function of a module that is installed."
        ) from error


class PairCache:
    """The pair loaded last, and room for no other: the old one is freed before another is loaded."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self._spec: PairSpec | None = None
        self._pair: Any = None

    def get(self, spec: PairSpec, progress: Callable[[str, float], None]) -> Any:
        """The pair of ``spec``, loaded unless it is the one at hand."""
        if self._spec != spec:
            self.clear()
            self._pair = self._load(spec, progress)
            self._spec = spec
            # Weights and modules live until the next pair: keep every later collection from walking them.
            gc.collect()
            gc.freeze()
        return self._pair

    def clear(self) -> None:
        """Forget the pair and give its memory back."""
        if self._spec is None:
            return
        self._spec, self._pair = None, None
        gc.unfreeze()
        free_memory()


class Runner:
    """Decodes one run at a time with a cached pair; survives whatever a run raises."""

    def __init__(self, loader: Loader | str = LOADER, engine: Engine | str = ENGINE) -> None:
        self._engine = engine
        self._pairs = PairCache(_by_name(loader))

    def unload(self) -> None:
        """Free the loaded pair."""
        self._pairs.clear()

    def run(
        self,
        run_id: str,
        spec: RunSpec,
        tell: Callable[[Happening], None],
        cancelled: Callable[[], bool],
    ) -> Ended:
        """Decode ``spec``, telling each happening in order; ``cancelled`` is asked before each of them.

        Never raises for what happens in the run: faults end it as failed with a sentence, text so far included.
        """
        so_far = _SoFar()
        try:
            return self._decode(run_id, spec, tell, cancelled, so_far)
        except _Cancelled:
            ended = so_far.ended("cancelled")
        except Exception as fault:
            # Loaders may wrap the exception that their progress call raised, so the question is asked again.
            if cancelled() and so_far.started is None:
                ended = so_far.ended("cancelled")
            else:
                # As text: a log record that holds the traceback would hold the run's tensors.
                LOG.error("run %s failed\n%s", run_id, traceback.format_exc())
                ended = so_far.ended("failed", _sentence(fault))
        # Only here, outside the handlers, does no traceback hold on to the run's tensors any more.
        free_memory()
        return ended

    def _decode(self, run_id: str, spec: RunSpec, tell: Tell, cancelled: Callable[[], bool], so_far: _SoFar) -> Ended:
        def progress(message: str, fraction: float | None) -> None:
            if cancelled():
                raise _Cancelled
            tell(Loading(run_id=run_id, message=message, fraction=fraction))

        progress("starting the engine …", None)
        engine = cast(Engine, resolve(self._engine)) if isinstance(self._engine, str) else self._engine
        pair = self._pairs.get(spec.pair, progress)
        progress("reading the prompt …", None)
        with closing(cast(Any, engine([spec.request], pair, should_stop=cancelled))) as events:
            for event in events:
                match event:
                    case Started():
                        so_far.started = event = _with_fingerprint(event, pair, spec.request)
                        tell(RunStarted(run_id=run_id, started=event))
                    case Round():
                        so_far.add(event)
                        tell(RunRound(run_id=run_id, round=event))
                    case Ended():
                        return event
        raise EngineFault("The engine stopped without saying how the run ended: please report the run's settings.")


class _SoFar:
    """What a run has put out until now: enough for an honest end."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self._text: list[str] = []
        self._e2e_s = 0.0

    def add(self, round: Round) -> None:
        self._text.extend(round.committed_text)
        self._e2e_s = round.ended_at_s

    def ended(self, reason: StopReason, error: str | None = None) -> Ended:
        """An end on the run's own clock: seconds until its last whole round (0 before the first)."""
        return Ended(
            request=0,
            stop_reason=reason,
            text="".join(self._text),
            e2e_s=self._e2e_s,
            error=error,
        )


def _by_name(loader: Loader | str) -> Loader:
    if not isinstance(loader, str):
        return loader
    # Resolved at the first run: importing torch takes seconds, which belong under that run's "starting the engine".
    return lambda spec, progress: resolve(loader)(spec, progress)


def _with_fingerprint(started: Started, pair: Any, request: Request) -> Started:
    if started.fingerprint is not None:
        return started
    from core.fingerprint import fingerprint  # imports torch

    return replace(started, fingerprint=fingerprint(pair, request))


def free_memory() -> None:
    """Collect garbage and hand cached device memory back."""
    gc.collect()
    torch = sys.modules.get("torch")  # if nobody has imported it, there is nothing to free
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _is_out_of_memory(fault: Exception) -> bool:
    torch = sys.modules.get("torch")
    return (
        isinstance(fault, MemoryError)
        or (torch is not None and isinstance(fault, torch.OutOfMemoryError))
        # What torch's CPU allocator raises is a bare RuntimeError.
        or (isinstance(fault, RuntimeError) and "can't allocate memory" in str(fault))
    )


def _sentence(fault: Exception) -> str:
    if isinstance(fault, SpecLensError):
        return str(fault)
    first_line = (str(fault).strip().splitlines() or ["no message"])[0]
    if _is_out_of_memory(fault):
        return (
            f"The device ran out of memory ({first_line}); the run's caches were freed. Lower max new tokens, the "
            "length of the prompt or the number of drafted candidates, or choose a smaller pair or precision."
        )
    return (
        f"The run broke on something unexpected ({type(fault).__name__}: {first_line}). Later runs are not affected; "
        "the engine's log holds the details for a report."
    )
