"""What the turns say, one row per setting and contender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from core.bench.measuring import Series
from core.grammar import format_drafter
from core.results.metrics import ratio


@dataclass(frozen=True, slots=True)
class Tie:
    """Where an output parts from what it is compared with (:class:`core.bench.agreement.NearTie`); ``prompt``: its
    place among the prompts."""

    prompt: int
    position: int
    tokens: tuple[int, int]
    margin: float


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one setting; None where nothing was measured.

    ``peer``: None for this engine. ``tokens_per_second``: median over ``runs`` turns, prefill included, with its
    smallest and largest in ``spread``. ``ratio_to_assisted``: ours over transformers' assisted generation of the same
    drafter and γ (plain rows: over its plain ``generate``), ``ratio_same_linears``: the same with transformers on our
    linear modules, each the median of the turns' ratios, their extremes beside it; ``ratio_of_ours``: in a peer's row,
    ours over it. ``outside_forward_share``: of the wall time after the prefill. ``tokens``: new tokens a turn.
    ``near_ties``: the first of each prompt; ``error``: a sentence.
    """

    name: str
    peer: str | None
    drafter: str
    gamma: int
    batch: int
    prompts: int
    runs: int
    tokens: int | None
    tokens_per_second: float | None
    spread: tuple[float, float] | None
    ratio_to_assisted: float | None
    ratio_to_assisted_spread: tuple[float, float] | None
    ratio_same_linears: float | None
    ratio_same_linears_spread: tuple[float, float] | None
    ratio_of_ours: float | None
    tokens_per_round: float | None
    outside_forward_share: float | None
    peak_bytes: int | None
    peak_kind: str | None
    near_ties: tuple[Tie, ...]
    error: str

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


def rows(series: Sequence[Series], prompts: dict[int, int], assisted: str, same_linears: str) -> list[Row]:
    """A row per series. ``prompts``: how many were decoded, by batch; the two names are the peers that ours is set
    against."""
    return [_row(one, series, prompts[one.setting.batch], assisted, same_linears) for one in series]


def _row(one: Series, series: Sequence[Series], prompts: int, assisted: str, same_linears: str) -> Row:
    beside = {other.contender.peer: other for other in series if other.setting == one.setting}
    ours = beside[None] is one
    to_assisted = _ratios(one, beside.get(assisted)) if ours else []
    to_same = _ratios(one, beside.get(same_linears)) if ours else []
    of_ours = [] if ours else _ratios(beside[None], one)
    speeds = [taken.tokens_per_second for taken in one.timed]
    taken = [*one.timed, *one.untimed]
    counted = next((t for t in taken if t.rounds), None)
    shares = [t.outside_share for t in one.timed if t.outside_share is not None]
    # on CUDA only the last, untimed turn knows it
    shares = shares or [t.outside_share for t in one.untimed[-1:] if t.outside_share is not None]
    highest = max((t.peak for t in taken), key=lambda peak: peak.bytes, default=None)
    peer = one.contender.peer
    return Row(
        name=one.setting.name + (f", {peer}" if peer else ""),
        peer=peer,
        drafter=format_drafter(one.setting.drafter),
        gamma=one.setting.gamma,
        batch=one.setting.batch,
        prompts=prompts,
        runs=len(one.timed),
        tokens=taken[0].tokens if taken else None,
        tokens_per_second=_median(speeds),
        spread=_extremes(speeds),
        ratio_to_assisted=_median(to_assisted),
        ratio_to_assisted_spread=_extremes(to_assisted),
        ratio_same_linears=_median(to_same),
        ratio_same_linears_spread=_extremes(to_same),
        ratio_of_ours=_median(of_ours),
        tokens_per_round=ratio(counted.tokens, counted.rounds) if counted and counted.rounds else None,
        outside_forward_share=_median(shares),
        peak_bytes=highest.bytes if highest else None,
        peak_kind=highest.kind if highest else None,
        near_ties=tuple(Tie(at, tie.position, tie.tokens, tie.margin) for at, tie in sorted(one.near_ties.items())),
        error=one.error,
    )


def _ratios(ours: Series, theirs: Series | None) -> list[float]:
    """Ours over theirs, turn by turn; none when either broke off, as their turns no longer match."""
    if theirs is None or ours.error or theirs.error:
        return []
    pairs = zip(ours.timed, theirs.timed, strict=True)
    return [a.tokens_per_second / b.tokens_per_second for a, b in pairs]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _extremes(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
