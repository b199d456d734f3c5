"""Metrics: one definition each, derived only here from stored counts and seconds (metrics.md).

A rate with an empty denominator is None, not 0 or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.records import Ended, Round, Started, Summary

ROUNDING = 1e-6
"""Distortion (KL, TV, escaped mass) below which it is rounding error. Accept vectors and redraws are float32, 6e-8
relative, so the induced law of a lossless rule is off by less than this in total (test_distortion, on a whole
vocabulary)."""


def summarise(started: Started, rounds: Sequence[Round], ended: Ended) -> Summary:
    """Metrics of one run, from its records."""
    return Summary(
        prompt_tokens=started.prompt_tokens,
        prefill_s=started.prefill_s,
        text=ended.text,
        stop_reason=ended.stop_reason,
        peak_memory_bytes=ended.peak_memory_bytes,
        peak_memory_kind=ended.peak_memory_kind,
        **counts_of(rounds),
        **times_of(rounds, ended),
        **gaps_of(rounds),
        **distortion_of(rounds),
    )


def counts_of(rounds: Sequence[Round]) -> dict[str, Any]:
    """Fields of a Summary that count tokens, candidates and rounds, and the rates of these counts."""
    output = sum(len(one.committed) for one in rounds)
    drafted = sum(one.drafted for one in rounds)
    accepted = sum(one.accepted for one in rounds)
    return {
        "output_tokens": output,
        "rounds": len(rounds),
        "rounds_without_draft": sum(one.drafted == 0 for one in rounds),
        "drafted": drafted,
        "accepted": accepted,
        "rejected": sum(one.count("rejected") for one in rounds),
        "unreached": sum(one.count("unreached") for one in rounds),
        "cut": sum(one.count("cut") for one in rounds),
        "tokens_per_round": ratio(output, len(rounds)),
        "accepted_length": ratio(accepted, len(rounds)),
        "draft_acceptance_rate": ratio(accepted, drafted),
        "path_acceptance": ratio(accepted, sum(one.depth_offered for one in rounds)),
        "target_calls_per_token": ratio(len(rounds), output),
        "acceptance_unconditional": acceptance_by_position(rounds, conditional=False),
        "acceptance_conditional": acceptance_by_position(rounds, conditional=True),
    }


def times_of(rounds: Sequence[Round], ended: Ended) -> dict[str, Any]:
    """Fields of a Summary that are seconds of stages, latencies and the token rate."""
    output = sum(len(one.committed) for one in rounds)
    decode_s = sum(one.wall_s for one in rounds)
    emitted_at_s = [one.ended_at_s for one in rounds if one.committed]
    first_s, last_s = (emitted_at_s[0], emitted_at_s[-1]) if emitted_at_s else (None, None)
    return {
        "draft_s": sum(one.draft_s for one in rounds),
        "verify_s": sum(one.verify_s for one in rounds),
        "state_s": sum(one.state_s for one in rounds),
        "other_s": sum(one.other_s for one in rounds),
        "decode_s": decode_s,
        "ttft_s": first_s,
        "tpot_s": None if first_s is None or last_s is None else ratio(last_s - first_s, output - 1),
        "e2e_s": ended.e2e_s if last_s is None else last_s,
        "tokens_per_second": ratio(output, decode_s),
    }


def gaps_of(rounds: Sequence[Round]) -> dict[str, Any]:
    """Token-gap fields of a Summary: over all tokens, and over bursts (only the gaps that are not 0)."""
    gaps = token_gaps(rounds)
    bursts = [gap for gap in gaps if gap > 0.0]
    return {
        f"{name}_{label}_s": value
        for name, found in (("gap", gaps), ("burst_gap", bursts))
        for label, value in (
            ("p50", percentile(found, 50)),
            ("p95", percentile(found, 95)),
            ("max", max(found, default=None)),
        )
    }


def progress(started: Started, rounds: Sequence[Round]) -> Summary:
    """Metrics of a run in progress, up to its last whole round; ``stop_reason`` has no meaning yet."""
    text = "".join(piece for one in rounds for piece in one.committed_text)
    last_s = rounds[-1].ended_at_s if rounds else started.prefill_s
    return summarise(started, rounds, Ended(started.request, "interrupted", text, last_s))


def speed_up(run: Summary, plain: Summary) -> float | None:
    """Time per token of plain decoding of the same target over this run's (×); None unless both were measured."""
    if run.tokens_per_second is None or plain.tokens_per_second is None:
        return None
    return ratio(run.tokens_per_second, plain.tokens_per_second)


def ratio(numerator: float, denominator: float) -> float | None:
    """``numerator / denominator``, or None if the denominator is not positive."""
    return numerator / denominator if denominator > 0 else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linearly interpolated percentile, or None without values."""
    return float(np.percentile(values, percent)) if values else None


def token_gaps(rounds: Sequence[Round]) -> list[float]:
    """Seconds between consecutive tokens as emitted. A round's tokens are one burst, so: gap, 0, 0, gap …"""
    gaps: list[float] = []
    previous: float | None = None
    for one in rounds:
        if not one.committed:
            continue
        if previous is not None:
            gaps.append(one.ended_at_s - previous)
        gaps += [0.0] * (len(one.committed) - 1)
        previous = one.ended_at_s
    return gaps


def acceptance_by_position(rounds: Sequence[Round], *, conditional: bool) -> tuple[float | None, ...]:
    """Acceptance at position i = 1, 2, …: rounds with accepted ≥ i over rounds that drafted ≥ i (vLLM), or, if
    conditional, over those of these rounds with accepted ≥ i − 1. For a tree, "drafted" is the depth offered."""
    fared = [(one.depth_offered, one.accepted) for one in rounds]  # counted once, not per position: pages call often
    deepest = max((depth for depth, _ in fared), default=0)
    rates = []
    for i in range(1, deepest + 1):
        offered = [accepted for depth, accepted in fared if depth >= i and (not conditional or accepted >= i - 1)]
        rates.append(ratio(sum(accepted >= i for accepted in offered), len(offered)))
    return tuple(rates)


def distortion_of(rounds: Sequence[Round]) -> dict[str, Any]:
    """Distortion fields of a Summary: means over tested positions, for KL over those that have a KL; overshoot is a
    share of tested tokens. Empty if nothing was measured, so that the fields are None."""
    times = [one.distortion_s for one in rounds if one.distortion_s is not None]
    if not times:
        return {}
    found = [(one, place, place.distortion) for one in rounds for place in one.positions if place.distortion]
    kls = [distortion.kl for _, _, distortion in found if distortion.kl is not None]
    tried = [
        (distortion.overshoot, sum(node.parent == place.node and node.u is not None for node in one.nodes))
        for one, place, distortion in found
        if distortion.overshoot is not None
    ]
    return {
        "distortion_kl": mean(kls),
        "distortion_tv": mean([distortion.tv for _, _, distortion in found]),
        "escaped_mass": mean([distortion.escaped_mass for _, _, distortion in found]),
        "overshoot": ratio(sum(share * count for share, count in tried), sum(count for _, count in tried)),
        "distortion_positions": len(found),
        "distortion_kl_undefined": len(found) - len(kls),
        "distortion_conditional": sum(distortion.conditional for _, _, distortion in found),
        "distortion_s": sum(times),
    }


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, or None without values."""
    return ratio(sum(values), len(values))


def violations(summary: Summary, rounds: Sequence[Round]) -> list[str]:
    """Conservation laws that a run's records violate, as sentences; empty for every sound run (metrics.md)."""
    broken = []
    if sum(len(one.committed) for one in rounds) != summary.output_tokens:
        broken.append("the committed tokens of the rounds are not the output's length")
    if summary.drafted != summary.accepted + summary.rejected + summary.unreached + summary.cut:
        broken.append("drafted is not accepted + rejected + unreached + cut")
    for one in rounds:
        if abs(one.draft_s + one.verify_s + one.state_s + one.other_s - one.wall_s) > 1e-3:
            broken.append(f"round {one.index + 1}: the stages do not add up to its wall time")
        if len(one.committed) != one.accepted + (one.source != "none"):
            broken.append(f"round {one.index + 1}: committed is not accepted plus its correction or bonus")
    by_position = (*summary.acceptance_unconditional, *summary.acceptance_conditional)
    shares = (summary.distortion_tv, summary.escaped_mass, summary.overshoot)
    rates = (summary.draft_acceptance_rate, summary.path_acceptance, *shares, *by_position)
    if any(rate is not None and not 0.0 <= rate <= 1.0 for rate in rates):
        broken.append("a rate lies outside 0 … 1")
    return broken
