"""Notices about settings that can't act in a request: pages and terminal show them before a run."""

from __future__ import annotations

from collections.abc import Iterable

from core.grammar import sampling_parts
from core.rules import degenerate
from core.types import NoDrafter, Request, Sampling

_DRAWING = ("top_k", "top_p", "min_p", "eta", "epsilon", "allowed")
"""Settings that change which tokens can be drawn: greedy decoding takes the most probable one whatever they are."""

_TRUNCATIONS = ("min_p", "eta", "epsilon", "allowed")


def notices(request: Request) -> list[str]:
    """Sentences about the sampling, then about the rule; empty for a request in which everything acts."""
    return [*_sampling(request), *degenerate.notices(request)]


def control_stops(request: Request, control: Iterable[str]) -> list[str]:
    """Sentences about stop strings that hold the name of one of the ``control`` tokens, which give no text."""
    names = [name for name in control if name]
    return [
        f"The stop string {stop!r} holds the name of the control token {name!r}, which gives no text: it stops nothing "
        "unless the model spells the name out. The model's own end tokens end a run without it."
        for stop in request.stops.stop_strings
        for name in [next((name for name in names if name in stop), None)]
        if name is not None
    ]


def _sampling(request: Request) -> list[str]:
    sampling = request.sampling
    found = []
    if sampling.greedy and (idle := _given(sampling, _DRAWING)):
        found.append(f"At temperature 0 {_named(idle)} nothing: the most probable token is taken.")
    if sampling.truncate_draft:
        if not _given(sampling, _TRUNCATIONS):
            found.append("truncate_draft changes nothing without min_p, eta, epsilon or an allowed set.")
        elif isinstance(request.drafter, NoDrafter) or not request.samples_candidates:
            found.append("truncate_draft changes nothing: no candidate is drawn from the draft here.")
    if request.seed and sampling.greedy and not request.samples_candidates:
        found.append(f"At temperature 0 nothing is drawn: the seed {request.seed} changes nothing.")
    if sampling.min_new_tokens > request.stops.max_new_tokens:
        found.append(
            f"min_new_tokens {sampling.min_new_tokens:,} is more than max_new_tokens {request.stops.max_new_tokens:,}: "
            "the answer ends there, and no end token can end it."
        )
    return found


def _given(sampling: Sampling, names: tuple[str, ...]) -> list[str]:
    return [f"{name}={value}" for name, value in sampling_parts(sampling).items() if name in names]


def _named(parts: list[str]) -> str:
    return f"{' and '.join(parts)} {'changes' if len(parts) == 1 else 'change'}"
