"""Records of a run: frozen, of plain Python values. No torch here.

An engine yields, per request, one :class:`Started`, then :class:`Round` records, then one :class:`Ended`. Counts and
seconds are recorded; rates are derived only in ``core/results/metrics.py`` (metrics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

UNKNOWN = "unknown"
"""A field of a fingerprint that a run was stored without, before the field was recorded."""

ROOT = -1
"""Parent of the first candidates: the last committed token."""

Fate = Literal["accepted", "rejected", "unreached", "cut"]
"""accepted: committed · rejected: failed its test · unreached: never tested · cut: accepted, but after a stop."""

Source = Literal["correction", "bonus", "none"]
"""Origin of a round's last token; none: the round stopped inside its draft."""

StopReason = Literal[
    "eos",
    "stop_string",
    "max_new_tokens",
    "context_end",
    "cancelled",
    "failed",
    "interrupted",
]

RunStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]

TERMINAL: frozenset[RunStatus] = frozenset({"done", "failed", "cancelled", "interrupted"})


def status_of(reason: StopReason) -> RunStatus:
    """Status of a run that ended for this reason: ``done`` unless the reason is itself a status."""
    match reason:
        case "failed" | "cancelled" | "interrupted":
            return reason
        case _:
            return "done"


@dataclass(frozen=True, slots=True)
class Trial:
    """One acceptance test. ``p`` and ``q`` are the token's probabilities when it was tested, after the rejection of
    earlier siblings (for a rule with its own law r*, p is the original target's). Accepted iff ``u < accept_prob``; in
    a block, the last candidate with ``u < accept_prob`` is accepted with all before it."""

    node: int
    token: int
    p: float
    q: float
    accept_prob: float
    u: float
    accepted: bool
    redraw_fallback: bool = False
    """The target's distribution was used because the rule's ``draft_in_set`` redraw had no draft mass on A, or because
    ``cos_cd``'s p/q^μ was zero everywhere (rules.md §1)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of verifying a draft: the path of accepted nodes, then the token drawn at its end."""

    path: tuple[int, ...]
    next_token: int
    source: Source
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One candidate of a round.

    ``parent`` is a node index or :data:`ROOT`; ``q``: the probability with which the candidate was drawn (1 if
    deterministic); ``score``: the drafter's own probability; ``p``, ``accept_prob``, ``u``: None if never tested.
    ``text`` is for display: bytes that are only part of a character appear as ⟨e2⟩. Block verification tests the whole
    chain, so even its unreached nodes have p, ``accept_prob`` (hᵢ) and u.
    """

    token: int
    text: str
    parent: int
    depth: int
    fate: Fate
    p: float | None
    q: float | None
    score: float | None
    accept_prob: float | None
    u: float | None
    near_threshold: bool = False
    """|u − accept_prob| < 1e-5: rounding could reverse the decision."""
    redraw_fallback: bool = False
    """As in :class:`Trial`."""


@dataclass(frozen=True, slots=True)
class TopToken:
    """One token of a position's table; ``q`` is None if nothing was drafted there (bonus positions).

    ``residual``: its probability in a redraw; ``induced``: its probability in the rule's law. Both are exact over the
    whole vocabulary, and None if nothing was tested or distortion was not measured.
    """

    token: int
    text: str
    p: float
    q: float | None
    residual: float | None = None
    induced: float | None = None


@dataclass(frozen=True, slots=True)
class Distortion:
    """Distance of the rule's law from the reference law p_ref at one tested position (metrics.md "distortion").

    ``kl``: nats, None if the law leaves p_ref's support; ``escaped_mass``: the law's mass outside that support.
    ``overshoot``: share of the tested tokens with q > p/ℓ; None for a one-hot q. ``conditional``: the siblings were
    drawn without replacement, so the law is conditional on the tokens tried.
    """

    kl: float | None
    tv: float
    escaped_mass: float
    overshoot: float | None
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Top 20 tokens by max(p, q) after ``node`` (ROOT: after the committed prefix), and the mass of the rest."""

    node: int
    top: tuple[TopToken, ...]
    p_rest: float
    q_rest: float | None
    distortion: Distortion | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One cycle: propose, score in one target pass, walk, commit. Times in seconds, device-synchronised.

    ``request``: index in the batch. ``committed_text[i]``: the text that ``committed[i]`` completed ("" while a
    character is incomplete). ``ended_at_s`` counts from the request's acceptance on the run's own clock, which stops
    while the consumer holds the generator.
    """

    request: int
    index: int
    nodes: tuple[Node, ...]
    committed: tuple[int, ...]
    committed_text: tuple[str, ...]
    source: Source
    positions: tuple[Position, ...]
    draft_s: float
    verify_s: float
    state_s: float
    other_s: float
    wall_s: float
    ended_at_s: float
    distortion_s: float | None = None
    """Seconds spent measuring distortion, in no stage and not in ``wall_s``; None if not measured."""

    def count(self, fate: Fate) -> int:
        """Number of nodes with this fate, in tokens."""
        return sum(node.fate == fate for node in self.nodes)

    @property
    def drafted(self) -> int:
        """Candidates sent to verification, in tokens."""
        return len(self.nodes)

    @property
    def accepted(self) -> int:
        """Candidates that were committed, in tokens."""
        return self.count("accepted")

    @property
    def depth_offered(self) -> int:
        """Longest drafted path, in tokens."""
        return max((node.depth for node in self.nodes), default=0)


@dataclass(frozen=True, slots=True)
class Started:
    """Start of a request: its prompt is in the cache. ``prefill_s``: seconds of target's and draft's prompt passes;
    ``prompt_ids_hash``: hash of its tokens; ``batch``: requests decoded together."""

    request: int
    prompt_tokens: int
    prefill_s: float
    recomputed_share: float | None = None
    """Early exit: share of the target's layers that verification recomputes (0 when activations are reused)."""
    fingerprint: Fingerprint | None = None
    prompt_ids_hash: str = UNKNOWN
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a request. ``text``: the output as cut by stops; ``error``: a sentence if ``failed``."""

    request: int
    stop_reason: StopReason
    text: str
    e2e_s: float
    peak_memory_bytes: int | None = None
    peak_memory_kind: Literal["cuda_allocated", "process_rss"] | None = None
    error: str | None = None


Event = Started | Round | Ended


def ended_early(
    rounds: Sequence[Round], reason: StopReason, error: str | None = None, *, prefill_s: float = 0.0
) -> Ended:
    """End of a run that its engine did not end: the text of its whole ``rounds``; ``e2e_s`` is the end of the last
    round on the run's own clock, or ``prefill_s`` without rounds."""
    return Ended(
        request=rounds[0].request if rounds else 0,
        stop_reason=reason,
        text="".join(piece for one in rounds for piece in one.committed_text),
        e2e_s=rounds[-1].ended_at_s if rounds else prefill_s,
        error=error,
    )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Settings and environment that must be equal for a fair comparison (design.md "Fixed-target fingerprint")."""

    target: str
    target_hash: str
    draft: str | None
    draft_hash: str | None
    precision: str
    tokenizer_hash: str
    template_hash: str
    sampling: str
    reference_law: str
    stops: str
    cache_policy: str
    drafting: str
    device: str
    versions: dict[str, str]
    seed: int
    prompt_hash: str
    rule: str = "lossless"
    """The rule under test; ``reference_law`` is the law that its output is compared with."""
    prompt_ids_hash: str = UNKNOWN
    """Hash of the prompt's tokens as the model read them, template included."""
    end_tokens: str = UNKNOWN
    """Ids that end a run, in order."""
    batch: int | None = None
    """Requests decoded together, which share a pass; None in runs stored before this was recorded."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Metrics of one run, as defined in metrics.md, in seconds, tokens and bytes. Rates without a denominator are None.

    ``speed_up`` is not a field: it needs a matched plain run as well.
    """

    prompt_tokens: int
    output_tokens: int
    rounds: int
    rounds_without_draft: int
    drafted: int
    accepted: int
    rejected: int
    unreached: int
    cut: int
    text: str
    stop_reason: StopReason
    tokens_per_round: float | None
    accepted_length: float | None
    draft_acceptance_rate: float | None
    path_acceptance: float | None
    target_calls_per_token: float | None
    acceptance_unconditional: tuple[float | None, ...]
    acceptance_conditional: tuple[float | None, ...]
    draft_s: float
    verify_s: float
    state_s: float
    other_s: float
    prefill_s: float
    decode_s: float
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float
    gap_p50_s: float | None
    gap_p95_s: float | None
    gap_max_s: float | None
    burst_gap_p50_s: float | None
    burst_gap_p95_s: float | None
    burst_gap_max_s: float | None
    tokens_per_second: float | None
    peak_memory_bytes: int | None
    peak_memory_kind: str | None
    # distortion: None in runs that did not measure it
    distortion_kl: float | None = None
    distortion_tv: float | None = None
    escaped_mass: float | None = None
    overshoot: float | None = None
    distortion_positions: int | None = None
    distortion_kl_undefined: int | None = None
    distortion_conditional: int | None = None
    distortion_s: float | None = None


def to_plain(record: Any) -> dict[str, Any]:
    """A record as JSON-ready plain values."""
    return _serialiser(type(record)).dump_python(record, mode="json")


@cache
def _serialiser(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
