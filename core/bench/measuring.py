"""The turns: every contender decodes every setting once a turn, so that drift of the machine affects all alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from core.bench.agreement import NearTie
from core.bench.contender import Answer, Contender, Workload
from core.bench.machine import Peak
from core.bench.settings import Setting
from core.errors import SpecLensError
from core.models.sources import first_line


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. ``timed``: it counts in medians; ``watched``: passes may be counted at a cost."""

    timed: bool
    watched: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What one contender took for one setting in one turn: new tokens, seconds (prefill included), bytes.
    ``outside_share``: share of the time after the prefill that is outside forward passes."""

    tokens: int
    seconds: float
    rounds: int | None
    outside_share: float | None
    peak: Peak

    @property
    def tokens_per_second(self) -> float:
        """New tokens over wall seconds."""
        return self.tokens / self.seconds


@dataclass(slots=True)
class Series:
    """All turns of a contender on a setting. ``error``: a sentence; the contender takes no further turns then."""

    setting: Setting
    contender: Contender
    timed: list[Taken] = field(default_factory=list)
    untimed: list[Taken] = field(default_factory=list)
    near_ties: dict[int, NearTie] = field(default_factory=dict)
    """By the prompt's index in the set."""
    error: str = ""


class Comparison(Protocol):
    """Compares two outputs of one prompt, as :class:`core.bench.agreement.OutputCheck` does."""

    def check(self, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int], who: str) -> NearTie | None:
        """None for equal outputs, or their near-tie. Raises EngineFault for any other difference."""
        ...


def schedule(runs: int, cuda: bool) -> list[Turn]:
    """A first turn that warms up and counts passes, then the timed turns. On CUDA one more turn times forward passes,
    since synchronising around each would slow the timed turns."""
    return [Turn(False, True), *[Turn(True, False)] * runs, *([Turn(False, True)] if cuda else [])]


def measure(
    workloads: Mapping[Setting, Sequence[Workload]],
    contenders: Sequence[Contender],
    turns: Sequence[Turn],
    comparison: Comparison,
    *,
    clock: Callable[[], float],
    peak: Callable[[], AbstractContextManager[Peak]],
    progress: Callable[[str], object] = lambda message: None,
) -> list[Series]:
    """Series by setting and contender. ``contenders[0]`` must be this engine: the outputs of the others are compared
    with its output, and its own with those of its plain decoding. The first contender changes from turn to turn."""
    series = {
        setting: [Series(setting, one) for one in contenders if not one.unsupported(setting)] for setting in workloads
    }
    for reason in dict.fromkeys(one.unsupported(setting) for one in contenders for setting in workloads):
        if reason:
            progress(f"left out: {reason}")
    plain: dict[tuple[int, ...], tuple[int, ...]] = {}
    for number, turn in enumerate(turns):
        for setting, entered in series.items():
            first = number % len(entered)
            outputs: dict[int, list[tuple[int, ...]]] = {}
            for one in (*entered[first:], *entered[:first]):
                if one.error:
                    continue
                who = one.contender.peer or "speclens"
                progress(f"turn {number + 1} of {len(turns)}: {setting.name}, {who}")
                try:
                    taken, outputs[entered.index(one)] = _take(one.contender, workloads[setting], turn, clock, peak)
                except SpecLensError as error:
                    one.error = str(error)
                    continue
                except Exception as error:  # a peer's own failure ends its series, not the others'
                    if one.contender.peer is None:
                        raise
                    one.error = f"{who} failed ({type(error).__name__}: {first_line(error)})."
                    continue
                (one.timed if turn.timed else one.untimed).append(taken)
            _compare(entered, outputs, workloads[setting], plain, comparison)
    return [one for entered in series.values() for one in entered]


def _take(
    contender: Contender,
    workloads: Sequence[Workload],
    turn: Turn,
    clock: Callable[[], float],
    peak: Callable[[], AbstractContextManager[Peak]],
) -> tuple[Taken, list[tuple[int, ...]]]:
    seconds, answers, peaks = 0.0, list[Answer](), list[Peak]()
    gc.collect()  # no contender pays for another's garbage
    for workload in workloads:
        with contender.ready(workload, turn.watched) as decode, peak() as seen:
            start = clock()
            answers.append(decode())
            seconds += clock() - start
        peaks.append(seen)
    outputs = [output for answer in answers for output in answer.outputs]
    counted = [answer.rounds for answer in answers if answer.rounds is not None]
    whole = sum(answer.decode_s or 0.0 for answer in answers)
    forwards = [answer.forward_s for answer in answers if answer.forward_s is not None]
    return Taken(
        tokens=sum(map(len, outputs)),
        seconds=seconds,
        rounds=sum(counted) if len(counted) == len(answers) else None,
        outside_share=1.0 - sum(forwards) / whole if len(forwards) == len(answers) and whole else None,
        peak=max(peaks, key=lambda one: one.bytes),
    ), outputs


def _compare(
    entered: Sequence[Series],
    outputs: Mapping[int, Sequence[tuple[int, ...]]],
    workloads: Sequence[Workload],
    plain: dict[tuple[int, ...], tuple[int, ...]],
    comparison: Comparison,
) -> None:
    """Compares this engine's outputs with those of its plain decoding, once known, and the peers' outputs with its."""
    if 0 not in outputs:
        return
    prompts = [prompt for workload in workloads for prompt in workload.prompts]
    if not entered[0].setting.gamma:
        for prompt, output in zip(prompts, outputs[0], strict=True):
            plain.setdefault(prompt, output)
    expected = [plain.get(prompt, output) for prompt, output in zip(prompts, outputs[0], strict=True)]
    for index, theirs in outputs.items():
        one = entered[index]
        right, who = (outputs[0], one.contender.peer) if one.contender.peer else (expected, one.setting.name)
        try:
            for at, (prompt, a, b) in enumerate(zip(prompts, right, theirs, strict=True)):
                if tie := comparison.check(prompt, a, b, str(who)):
                    one.near_ties.setdefault(at, tie)
        except SpecLensError as error:
            one.error = str(error)
