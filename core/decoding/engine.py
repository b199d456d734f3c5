"""The engine: propose → score in one target pass → walk with the rule → commit → yield.

One code path for chains, trees and plain decoding (the empty draft), for one request and for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from core.cache.target import Target
from core.decoding.assembly import assemble
from core.decoding.request_state import RequestState
from core.decoding.target_rows import target_rows
from core.decoding.timing import Laps, RunClock
from core.decoding.verify import verify
from core.device import device_clock, peak_memory, reset_peak_memory
from core.drafting.base import Drafter
from core.errors import BadInput, EngineFault
from core.faults import free_memory, is_out_of_memory
from core.records import Ended, Event, Started, StopReason
from core.sampling.randomness import Streams
from core.types import Request

if TYPE_CHECKING:
    from core.models.pair import Pair


def generate(
    requests: Sequence[Request],
    pair: Pair,
    *,
    streams: Callable[[Request], Streams] = lambda request: Streams.seeded(request.seed),
    clock: Callable[[], float] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Generator[Event, None, None]:
    """Decode ``requests`` together, yielding per request one Started, its Rounds in order, and one Ended.

    The consumer may stop at any event: closing the generator frees the caches. ``should_stop`` is called before each
    round; if true, all requests end as cancelled with the rounds they have. ``clock`` returns seconds (default: a
    device-synchronised monotonic clock).

    Raises :class:`BadInput` before the first event for requests that can't be served (prompt longer than the context,
    two drafters in one batch …). Faults while decoding end the request with a sentence in ``Ended.error``.
    """
    by_cycle = cycles(requests, pair, streams=streams, clock=clock, should_stop=should_stop)

    def one_by_one() -> Generator[Event, None, None]:
        with closing(by_cycle):
            for events in by_cycle:
                yield from events

    return one_by_one()


def cycles(
    requests: Sequence[Request],
    pair: Pair,
    *,
    streams: Callable[[Request], Streams] = lambda request: Streams.seeded(request.seed),
    clock: Callable[[], float] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Event, ...], None, None]:
    """Decode as :func:`generate` does, but yield once per cycle on the device, with all events that it releases.

    Reading the prompts is a cycle, and so is each round: between two cycles other runs may use the device. A cycle may
    release no event (a stop string may still cut its tokens) or several rounds; a request's end is yielded with its
    last round.
    """
    if not requests:
        raise BadInput("There is nothing to decode: give at least one request.")
    states = [_admitted(request, i, pair, streams(request)) for i, request in enumerate(requests)]
    run_clock = RunClock(clock or device_clock(pair.device))
    reset_peak_memory(pair.device)
    return _decode(states, pair, run_clock, should_stop)


def _admitted(request: Request, slot: int, pair: Pair, streams: Streams) -> RequestState:
    prompt = pair.text.encode(request)
    context = pair.target.context
    if len(prompt) >= context:
        raise BadInput(
            f"The prompt has {len(prompt):,} tokens and {pair.target.name} holds {context:,}, the answer included: "
            "shorten it."
        )
    if pair.draft and request.drafter.kind == "model" and len(prompt) > pair.draft.context:
        raise BadInput(
            f"The prompt has {len(prompt):,} tokens and the draft {pair.draft.name} holds {pair.draft.context:,}: "
            "shorten it or choose another drafter."
        )
    return RequestState.of(request, slot, prompt, pair, streams)


def _decode(
    states: list[RequestState], pair: Pair, clock: RunClock, should_stop: Callable[[], bool]
) -> Generator[tuple[Event, ...], None, None]:
    active = list(states)
    try:
        with clock.suspended():  # caches and layers are set up before the run's time begins
            target, drafter = assemble(pair, [state.request for state in states], [state.prompt for state in states])
        for state in states:
            _prefill(state, target, drafter)
        border = clock.now()  # no round begins before every prompt of the batch is read: prefill of each
        starts = [
            Started(
                state.slot,
                len(state.prompt),
                border,
                drafter.recomputed_share,
                prompt_ids_hash=_ids_hash(state.prompt),
                batch=len(states),
            )
            for state in states
        ]
        with clock.suspended():
            yield tuple(starts)
        while active:
            if should_stop():
                ends = [[*state.release_all(), _ended(state, clock, pair, "cancelled")] for state in active]
                with clock.suspended():
                    yield tuple(chain.from_iterable(ends))
                return
            events: list[Event] = []
            failed, border = _round(active, target, drafter, Laps(clock, border))
            for state in list(active):
                fault = failed.get(state)
                events += state.release_all() if fault else state.released()
                if reason := "failed" if fault else state.watch.reason:
                    events.append(_ended(state, clock, pair, reason, fault))
                    active.remove(state)
                    target.close(state.slot)
                    drafter.close(state.slot)
            with clock.suspended():
                yield tuple(events)
    except Exception as error:
        if not is_out_of_memory(error):
            with clock.suspended():
                yield tuple(chain.from_iterable(state.release_all() for state in active))
            raise
        target = drafter = None  # frees the caches before the end is yielded
        error.__traceback__ = None
        free_memory()
        ends = [
            [
                *state.release_all(),
                _ended(state, clock, pair, "failed", _out_of_memory_sentence(state, len(states), pair)),
            ]
            for state in active
        ]
        with clock.suspended():
            yield tuple(chain.from_iterable(ends))


def _ids_hash(ids: Sequence[int]) -> str:
    return sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]


def _prefill(state: RequestState, target: Target, drafter: Drafter) -> None:
    """Prefill both caches with the prompt up to its last token, which is the root of the first round."""
    target.open(state.slot, state.prompt[:-1])
    drafter.open(state.slot, state.prompt[:-1])


def _round(
    states: Sequence[RequestState], target: Target, drafter: Drafter, laps: Laps
) -> tuple[dict[RequestState, str], float]:
    """Run one cycle: draft → score → walk → keep → commit. Return the error sentence of each request that failed, and
    when the round ended."""
    for state in states:
        if state.rereads:
            target.open(state.slot, state.sequence[:-1])
            laps.lap("state")
    drafts = drafter.propose([state.draft_request() for state in states])
    laps.lap("draft")
    scores = target.score([state.candidates(draft) for state, draft in zip(states, drafts, strict=True)])
    walks, failed = {}, {}
    for state, draft, rows in zip(states, drafts, target_rows(states, drafts, scores), strict=True):
        try:
            walks[state] = verify(draft, rows, state.rule, state.streams)
        except EngineFault as fault:
            failed[state] = str(fault)
    laps.lap("verify")
    for state, walk in walks.items():
        target.keep(state.slot, walk.verdict.path)
        drafter.keep(state.slot, walk.verdict.path)
    laps.lap("state")
    measured = {state: state.measure(walk) for state, walk in walks.items()}
    if any(measured.values()):
        laps.measured()
    for state, walk in walks.items():
        state.commit(walk, measured[state])
    laps.lap("other")
    for state in walks:
        state.timed(laps)
    return failed, laps.last


def _ended(
    state: RequestState,
    clock: RunClock,
    pair: Pair,
    reason: StopReason,
    error: str | None = None,
) -> Ended:
    peak = peak_memory(pair.device)
    return Ended(
        request=state.slot,
        stop_reason=reason,
        text=state.watch.text,
        e2e_s=clock.now(),
        peak_memory_bytes=peak.bytes,
        peak_memory_kind=peak.kind,
        error=error,
    )


def _out_of_memory_sentence(state: RequestState, batch: int, pair: Pair) -> str:
    lower = ["max_new_tokens", "the prompt"] + (["the batch"] if batch > 1 else [])
    return (
        f"out of memory on {pair.device} in round {state.rounds + 1} with {len(state.sequence):,} tokens: "
        f"lower {', '.join(lower)} or choose a smaller model or precision."
    )
