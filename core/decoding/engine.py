"""The engine: propose → score in one target pass → walk with the rule → commit → yield.

One code path for chains, trees and plain decoding (the empty draft), for one request and for a batch.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import torch

from core.cache.slots import Scored, Target
from core.decoding.assembly import assemble
from core.decoding.request_state import Lane, root_laws
from core.decoding.target_rows import peaks
from core.decoding.timing import Laps, RunClock, device_clock
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

    The consumer may stop anywhere: closing the generator frees the caches. ``should_stop`` is asked before each round;
    when true, all requests end as cancelled with the rounds they have. ``clock`` gives seconds (default: a
    device-synchronised monotonic clock).

    Raises :class:`BadInput` before the first event for requests that can't be served (prompt longer than the context,
    two drafters in one batch …). Faults while decoding end the request with a sentence in ``Ended.error``.
    """
    return _one_by_one(cycles(requests, pair, streams=streams, clock=clock, should_stop=should_stop))


def cycles(
    requests: Sequence[Request],
    pair: Pair,
    *,
    streams: Callable[[Request], Streams] = lambda request: Streams.seeded(request.seed),
    clock: Callable[[], float] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Event, ...], None, None]:
    """As :func:`generate`, but stopping at every border of a cycle with all that became known in it.

    A request's prefill is a cycle, and so is each round on the device: the border is where others may have the device.
    A cycle may tell nothing (its tokens may still be cut by a stop string) or several rounds; a request's end comes
    with its last round.
    """
    if not requests:
        raise BadInput("There is nothing to decode: give at least one request.")
    lanes = [_lane(request, i, pair, streams(request)) for i, request in enumerate(requests)]
    run_clock = RunClock(clock or device_clock(pair.device))
    _reset_peak_memory(pair.device)
    return _decode(lanes, pair, run_clock, should_stop)


def _lane(request: Request, slot: int, pair: Pair, streams: Streams) -> Lane:
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
    return Lane.of(request, slot, prompt, pair, streams)


def _one_by_one(cycles: Generator[tuple[Event, ...], None, None]) -> Generator[Event, None, None]:
    with closing(cycles):
        for events in cycles:
            yield from events


def _decode(
    lanes: list[Lane], pair: Pair, clock: RunClock, should_stop: Callable[[], bool]
) -> Generator[tuple[Event, ...], None, None]:
    active = list(lanes)
    try:
        target, drafter = assemble(pair, [lane.request for lane in lanes], [lane.prompt for lane in lanes])
        for lane in lanes:
            _prefill(lane, target, drafter, clock)
            started = Started(lane.slot, len(lane.prompt), lane.prefill_s, drafter.recomputed_share)
            with clock.suspended():
                yield (started,)
        while active:
            if should_stop():
                ends = [[*lane.release_all(), _ended(lane, clock, pair, "cancelled")] for lane in active]
                with clock.suspended():
                    yield tuple(chain.from_iterable(ends))
                return
            events: list[Event] = []
            failed = _round(active, target, drafter, clock)
            for lane in list(active):
                fault = failed.get(lane)
                events += lane.release_all() if fault else lane.released()
                if reason := "failed" if fault else lane.watch.reason:
                    events.append(_ended(lane, clock, pair, reason, fault))
                    active.remove(lane)
                    target.close(lane.slot)
                    drafter.close(lane.slot)
            with clock.suspended():
                yield tuple(events)
    except Exception as error:
        if not is_out_of_memory(error):
            with clock.suspended():
                yield tuple(chain.from_iterable(lane.release_all() for lane in active))
            raise
        target = drafter = None  # frees the caches before anyone is told
        error.__traceback__ = None
        free_memory()
        ends = [
            [
                *lane.release_all(),
                _ended(lane, clock, pair, "failed", _out_of_memory_sentence(lane, len(lanes), pair)),
            ]
            for lane in active
        ]
        with clock.suspended():
            yield tuple(chain.from_iterable(ends))


def _prefill(lane: Lane, target: Target, drafter: Drafter, clock: RunClock) -> None:
    """The prompt but for its last token goes into both caches; that last token is the root of the first round."""
    start = clock.now()
    target.open(lane.slot, lane.prompt[:-1])
    drafter.open(lane.slot, lane.prompt[:-1])
    lane.prefill_s = clock.now() - start


def _round(lanes: Sequence[Lane], target: Target, drafter: Drafter, clock: RunClock) -> dict[Lane, str]:
    """One cycle of all lanes; the sentences of those that failed."""
    failed: dict[Lane, str] = {}
    laps = Laps(clock)
    drafts = drafter.propose([lane.want() for lane in lanes])
    laps.lap("draft")
    batch = [Scored(lane.slot, lane.sequence[-1], draft) for lane, draft in zip(lanes, drafts, strict=True)]
    logits = target.score(batch)
    highest = peaks(logits)
    roots = root_laws(lanes, logits, highest)
    walked = {}
    for lane, draft, rows, peak in zip(lanes, drafts, logits, highest, strict=True):
        try:
            last = partial(target.last, lane.slot)
            walked[lane] = (draft, *lane.verify(draft, rows, peak, roots.get(lane), last))
        except EngineFault as fault:
            failed[lane] = str(fault)
    laps.lap("verify")
    for lane, (_, verdict, _) in walked.items():
        target.keep(lane.slot, verdict.path)
        drafter.keep(lane.slot, verdict.path)
    laps.lap("state")
    measured = {lane: lane.measure(*walk) for lane, walk in walked.items()}
    if any(measured.values()):
        laps.measured()
    for lane, walk in walked.items():
        lane.commit(*walk, measured[lane])
    laps.lap("other")
    for lane in walked:
        lane.timed(laps)
    return failed


def _ended(
    lane: Lane,
    clock: RunClock,
    pair: Pair,
    reason: StopReason,
    error: str | None = None,
) -> Ended:
    cuda = pair.device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(pair.device) if cuda else _peak_rss()
    return Ended(
        request=lane.slot,
        stop_reason=reason,
        text=lane.watch.text,
        e2e_s=clock.now(),
        peak_memory_bytes=peak,
        peak_memory_kind="cuda_allocated" if cuda else "process_rss",
        error=error,
    )


def _reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_rss() -> int:
    """Peak resident memory of this process since it began, bytes (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _out_of_memory_sentence(lane: Lane, batch: int, pair: Pair) -> str:
    lower = ["max_new_tokens", "the prompt"] + (["the batch"] if batch > 1 else [])
    return (
        f"out of memory on {pair.device} in round {lane.rounds} with {len(lane.sequence):,} tokens: "
        f"lower {', '.join(lower)} or choose a smaller model or precision."
    )
