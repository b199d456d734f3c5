"""The result: one row per setting and contender, and the rows as a table in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.bench.measuring import Series, Taken
from core.grammar import format_drafter
from core.results.metrics import ratio

COLUMNS = ("", "tokens/s", "min–max", "× assisted", "× same linears", "ours ×", "tokens/round", "outside", "peak")


@dataclass(frozen=True, slots=True)
class Tie:
    """A near-tie of an output with the one it is compared with (:class:`core.bench.agreement.NearTie`); ``prompt``: its
    index in the set."""

    prompt: int
    position: int
    tokens: tuple[int, int]
    margin: float


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one setting; None where nothing was measured.

    ``peer``: None for this engine. ``tokens_per_second``: median over ``runs`` turns, prefill included; ``spread``: its
    smallest and largest. ``ratio_to_assisted``: our speed over that of transformers' assisted generation with the same
    drafter and γ (plain rows: over its plain ``generate``); ``ratio_same_linears``: the same with transformers on our
    linear modules; both are medians of the turns' ratios, with their extremes beside them. ``ratio_of_ours``: in a
    peer's row, our speed over the peer's. ``outside_forward_share``: share of the time after the prefill. ``tokens``:
    new tokens a turn. ``near_ties``: the first of each prompt; ``error``: a sentence, or "".
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
        """The row as JSON-ready values."""
        return asdict(self)


def rows(series: Sequence[Series], prompts: dict[int, int], assisted: str, same_linears: str) -> list[Row]:
    """One row per series. ``prompts``: number decoded, by batch size; ``assisted``, ``same_linears``: the names of the
    two peers that this engine is compared with."""
    return [_row(one, series, prompts[one.setting.batch], assisted, same_linears) for one in series]


def _row(one: Series, series: Sequence[Series], prompts: int, assisted: str, same_linears: str) -> Row:
    beside = {other.contender.peer: other for other in series if other.setting == one.setting}
    ours = beside[None] is one
    to_assisted = _ratios(one, beside.get(assisted)) if ours else []
    to_same = _ratios(one, beside.get(same_linears)) if ours else []
    of_ours = [] if ours else _ratios(beside[None], one)
    speeds = [taken.tokens_per_second for taken in one.timed]
    taken = [*one.timed, *one.untimed]
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
        tokens_per_round=_tokens_per_round(taken),
        outside_forward_share=_outside_share(one),
        peak_bytes=highest.bytes if highest else None,
        peak_kind=highest.kind if highest else None,
        near_ties=tuple(Tie(at, tie.position, tie.tokens, tie.margin) for at, tie in sorted(one.near_ties.items())),
        error=one.error,
    )


def _tokens_per_round(taken: Sequence[Taken]) -> float | None:
    """From the first turn that counted its rounds."""
    return next((ratio(turn.tokens, turn.rounds) for turn in taken if turn.rounds), None)


def _outside_share(one: Series) -> float | None:
    """Median over the timed turns; on CUDA only the last, untimed turn has it."""
    shares = [turn.outside_share for turn in one.timed if turn.outside_share is not None]
    return _median(shares or [turn.outside_share for turn in one.untimed[-1:] if turn.outside_share is not None])


def _ratios(ours: Series, theirs: Series | None) -> list[float]:
    """Our speed over theirs, turn by turn; empty when either failed, as their turns no longer match."""
    if theirs is None or ours.error or theirs.error:
        return []
    pairs = zip(ours.timed, theirs.timed, strict=True)
    return [a.tokens_per_second / b.tokens_per_second for a, b in pairs]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _extremes(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


# -- in a terminal -----------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row], machine: Mapping[str, str]) -> None:
    """Prints the table, then a line for each near-tie and one for the machine."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row), style="dim" if row.peer else "")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else max(Console().width, 160))
    console.print(table)
    for row in rows:
        for tie in row.near_ties:
            console.print(
                Text(
                    f"{row.name}: near-tie at new token {tie.position} of prompt {tie.prompt}, tokens "
                    f"{tie.tokens[0]} and {tie.tokens[1]} within {tie.margin:.2g}; equal up to there."
                )
            )
    console.print(Text(", ".join(f"{name} {value}" for name, value in machine.items())), soft_wrap=True)
    if rows:
        note = (
            f"Medians over interleaved runs ({rows[0].runs}), prefill included; ratios are medians of the runs' ratios."
        )
        console.print(Text(note), soft_wrap=True)


def _cells(row: Row) -> list[str]:
    spread = f"{row.spread[0]:.1f}–{row.spread[1]:.1f}" if row.spread else "–"
    peak = f"{row.peak_bytes / 2**20:,.0f} MiB" if row.peak_bytes else "–"
    return [
        row.name + (" ✗" if row.error else ""),
        _number(row.tokens_per_second, ".1f"),
        spread,
        _number(row.ratio_to_assisted, ".2f"),
        _number(row.ratio_same_linears, ".2f"),
        _number(row.ratio_of_ours, ".2f"),
        _number(row.tokens_per_round, ".2f"),
        _number(row.outside_forward_share, ".1%"),
        peak,
    ]


def _number(value: float | None, how: str) -> str:
    return "–" if value is None else format(value, how)
