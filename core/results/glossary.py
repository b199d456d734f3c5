"""The metrics' names, units and definitions: tooltips of the pages and the head of an exported data dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``name`` is the field of ``Summary`` (or of a round); ``better`` None: it has no direction."""

    name: str
    label: str
    unit: str
    definition: str
    better: Better | None = None


_METRICS = (
    Metric("prompt_tokens", "Prompt", "tokens", "Tokens of the prompt, chat template included."),
    Metric("output_tokens", "Output", "tokens", "Tokens that ended up in the output; rejected candidates never count."),
    Metric("rounds", "Rounds", "rounds", "Cycles of draft, one verification pass, commit."),
    Metric(
        "rounds_without_draft",
        "Rounds without a draft",
        "rounds",
        "Rounds in which nothing was proposed, so that they decoded plainly.",
    ),
    Metric("drafted", "Drafted", "tokens", "Candidates sent to verification (tree: nodes; the root is not one)."),
    Metric("accepted", "Accepted", "tokens", "Drafted tokens that ended up committed."),
    Metric("rejected", "Rejected", "tokens", "Candidates that were tested and failed."),
    Metric(
        "unreached",
        "Unreached",
        "tokens",
        "Candidates that were never tested, because an earlier one on their path failed or a sibling was accepted.",
    ),
    Metric("cut", "Cut", "tokens", "Candidates that were accepted, but lie after a stop."),
    Metric(
        "tokens_per_round",
        "Tokens per round",
        "tokens/round",
        "Mean committed tokens, the correction or bonus included. Plain decoding = 1.",
        "higher",
    ),
    Metric(
        "accepted_length",
        "Accepted length",
        "tokens/round",
        "Mean accepted tokens, the correction or bonus excluded.",
        "higher",
    ),
    Metric(
        "draft_acceptance_rate",
        "Draft acceptance rate",
        "share",
        "Accepted over drafted tokens, all rounds pooled. For a chain; a tree's nodes are not its path length.",
        "higher",
    ),
    Metric(
        "path_acceptance",
        "Path acceptance",
        "share",
        "Accepted tokens over the depth offered, all rounds pooled: the acceptance rate of a tree.",
        "higher",
    ),
    Metric(
        "target_calls_per_token",
        "Target calls per token",
        "passes/token",
        "Verification passes over committed tokens.",
        "lower",
    ),
    Metric(
        "acceptance_unconditional",
        "Acceptance at position, unconditional",
        "share",
        "Rounds with accepted ≥ i over rounds that drafted ≥ i (vLLM's).",
    ),
    Metric(
        "acceptance_conditional",
        "Acceptance at position, conditional",
        "share",
        "Rounds with accepted ≥ i over rounds with accepted ≥ i−1 that drafted ≥ i.",
    ),
    Metric(
        "draft_s", "Draft time", "s", "Time spent proposing candidates, device-synchronised at its borders.", "lower"
    ),
    Metric("verify_s", "Verify time", "s", "Time spent scoring candidates with the target and testing them.", "lower"),
    Metric("state_s", "State time", "s", "Time spent making the caches follow the accepted path.", "lower"),
    Metric("other_s", "Other time", "s", "The rest of a round: stops, text, records.", "lower"),
    Metric(
        "distortion_s",
        "Time to measure distortion",
        "s",
        "What measuring distortion cost. The run's clock stands still meanwhile: no other time or rate contains it.",
        "lower",
    ),
    Metric(
        "wall_s",
        "Round time",
        "s",
        "A round from its first border to its last: draft + verify + state + other.",
        "lower",
    ),
    Metric("prefill_s", "Prefill", "s", "Prompt pass of target and draft.", "lower"),
    Metric("decode_s", "Decode time", "s", "Wall time of all rounds: end to end without queue and prefill.", "lower"),
    Metric(
        "ttft_s",
        "Time to first token",
        "s",
        "From the request's acceptance to its first committed token, queueing excluded.",
        "lower",
    ),
    Metric("tpot_s", "Time per output token", "s", "(End to end − time to first token) / (output − 1).", "lower"),
    Metric("e2e_s", "End to end", "s", "From the request's acceptance to its last token, queueing excluded.", "lower"),
    Metric(
        "gap_p50_s",
        "Token gap, median",
        "s",
        "Time between consecutive tokens as emitted; tokens of one round come as a burst: 0, 0, 0, gap.",
        "lower",
    ),
    Metric("gap_p95_s", "Token gap, p95", "s", "95th percentile of the time between consecutive tokens.", "lower"),
    Metric("gap_max_s", "Token gap, longest", "s", "Longest time between consecutive tokens.", "lower"),
    Metric("burst_gap_p50_s", "Burst gap, median", "s", "Time between the bursts of consecutive rounds.", "lower"),
    Metric("burst_gap_p95_s", "Burst gap, p95", "s", "95th percentile of the time between bursts.", "lower"),
    Metric("burst_gap_max_s", "Burst gap, longest", "s", "Longest time between bursts.", "lower"),
    Metric(
        "tokens_per_second",
        "Output tokens/s",
        "tokens/s",
        "Committed tokens over decode time; rejected candidates never count.",
        "higher",
    ),
    Metric(
        "peak_memory_bytes",
        "Peak memory",
        "bytes",
        "CUDA: most memory allocated during the run, draft weights and branch state included. CPU: the engine "
        "process's peak resident memory since it started.",
        "lower",
    ),
    Metric(
        "distortion_kl",
        "Distortion (KL)",
        "nats",
        "Mean over tested positions of KL(what the rule emits ‖ reference law), from the p and q at hand. Positions "
        "where the rule leaves the reference law's support have none and are counted beside it. Zero but for rounding "
        "under a lossless rule.",
        "lower",
    ),
    Metric(
        "distortion_tv",
        "Distortion (TV)",
        "share",
        "Mean over tested positions of the total variation distance between what the rule emits and the reference law.",
        "lower",
    ),
    Metric(
        "escaped_mass",
        "Escaped mass",
        "share",
        "Mean over tested positions of the probability that the rule emits a token the reference law never does.",
        "lower",
    ),
    Metric(
        "overshoot",
        "Overshoot",
        "share",
        "Share of tested tokens with q > p/ℓ (ℓ or λ of the rule, else 1): how often the draft overshoots, under a "
        "lossless rule too, which corrects it. None where candidates are deterministic.",
    ),
    Metric(
        "distortion_positions",
        "Positions measured",
        "positions",
        "Tested positions whose distortion was measured: those that the means are over.",
    ),
    Metric(
        "distortion_kl_undefined",
        "Positions without KL",
        "positions",
        "Measured positions where the rule leaves the reference law's support, so that KL is infinite.",
        "lower",
    ),
    Metric(
        "distortion_conditional",
        "Positions measured conditionally",
        "positions",
        "Measured positions with several sampled siblings, whose law is the one given the tokens tried.",
    ),
    Metric(
        "speed_up",
        "Decode speed-up",
        "×",
        "Same-target plain decoding time per token over this run's, both measured in one session; never estimated. "
        "Prompts are left out on both sides: over whole requests a long prompt, or a draft model's, shrinks the gain.",
        "higher",
    ),
)

GLOSSARY: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
"""By name."""
