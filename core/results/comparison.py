"""Runs side by side: signed changes of their metrics against a baseline, and runs grouped by prompt.

The changes are bare differences. Whether they show what the drafting did is a question of matching (``matching.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.records import Fingerprint, Summary
from core.results.glossary import GLOSSARY
from core.results.metrics import ROUNDING, ratio
from core.types import Request, is_lossless

NEGLIGIBLE = 5e-4
"""Relative changes smaller than this are not judged: they are within the noise of every clock here."""

TOTALS = frozenset({"draft_s", "verify_s", "state_s", "other_s", "decode_s", "e2e_s", "distortion_s"})
"""Seconds of a whole run: less is better only at the same output length."""

DISTORTIONS = frozenset({"distortion_kl", "distortion_tv", "escaped_mass"})


# -- lossy rules ------------------------------------------------------------------------------------------------------


def lossy_notices(base: tuple[Request, Fingerprint], run: tuple[Request, Fingerprint]) -> list[str]:
    """Notices for a comparison with a lossy rule on either side: the law of each (rules.md §1 "matched baseline").

    Empty for two lossless runs. Sentences; "the baseline" is ``base``.
    """
    (base_request, base_print), (request, print_) = base, run
    lossless, judged = is_lossless(base_request.rule), is_lossless(request.rule)
    if lossless and judged:
        return []
    if not lossless and not judged:
        if base_print.rule == print_.rule and base_print.reference_law == print_.reference_law:
            return ["Both runs use the same lossy rule: neither shows what the rule does to the output."]
        return [
            f"Two lossy rules, {base_print.rule} and {print_.rule}: neither is a baseline for the other. Compare each "
            "with its own lossless counterpart."
        ]
    rule = base_print.rule if judged else print_.rule
    if base_print.reference_law == print_.reference_law:
        return [
            f"{rule} changes the law of the output. The lossless run samples the law it is judged by "
            f"({base_print.reference_law}) and is its matched baseline: what differs in the text beyond chance is the "
            "rule's doing."
        ]
    lossy_law, law = print_.reference_law, base_print.reference_law
    if judged:
        lossy_law, law = law, lossy_law
    return [
        f"The lossless run is not the matched baseline of {rule}: it samples {law}, while the rule is judged by "
        f"{lossy_law}. Differences in the text mix the rule with that change of sampling."
    ]


# -- changes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of one run beside the baseline's.

    ``change``: value − baseline, in the metric's unit; ``share``: of the baseline's value, None where that is 0;
    ``better``: None where the metric has no direction, (next to) nothing changed, or the two can't be judged.
    """

    value: float | None
    change: float | None = None
    share: float | None = None
    better: bool | None = None


def measured(name: str, summary: Summary) -> float | None:
    """A run's value of a metric of the glossary that ``Summary`` holds; rounding's remains of a distortion are 0."""
    value = getattr(summary, name)
    return 0.0 if name in DISTORTIONS and value is not None and value < ROUNDING else value


def changes(name: str, summaries: Sequence[Summary], base: int) -> tuple[Change, ...]:
    """The metric of each run, with its signed change against run number ``base`` (which has none).

    A total is judged only at the same output length. Peak memory is compared only as device memory: a process's peak
    counts every run since it started.
    """
    reference = summaries[base]
    values = [measured(name, summary) for summary in summaries]
    found = changed(name, values, base)
    if name == "peak_memory_bytes":
        kinds = {"cuda_allocated"}
        both = [{summary.peak_memory_kind, reference.peak_memory_kind} == kinds for summary in summaries]
        return tuple(change if ok else Change(change.value) for change, ok in zip(found, both, strict=True))
    if name in TOTALS:
        same = [summary.output_tokens == reference.output_tokens for summary in summaries]
        return tuple(
            change if ok else Change(change.value, change.change, change.share)
            for change, ok in zip(found, same, strict=True)
        )
    return found


def changed(name: str, values: Sequence[float | None], base: int) -> tuple[Change, ...]:
    """As :func:`changes`, of values that are already at hand (a speed-up)."""
    return tuple(
        Change(value) if place == base else _change(name, value, values[base]) for place, value in enumerate(values)
    )


def _change(name: str, value: float | None, reference: float | None) -> Change:
    if value is None or reference is None:
        return Change(value)
    change = value - reference
    better = GLOSSARY[name].better
    share = ratio(change, abs(reference)) if reference else None
    same = change == 0 or (share is not None and abs(share) < NEGLIGIBLE)
    return Change(value, change, share, None if better is None or same else (change > 0) == (better == "higher"))


def scaled(name: str, values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Values on a parallel axis from 0 to 1, the better end up (lower-is-better metrics are turned over); equal
    values are in the middle."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    turned = GLOSSARY[name].better == "lower"

    def place(value: float) -> float:
        share = ratio(value - low, high - low)
        if share is None:
            return 0.5
        return 1.0 - share if turned else share

    return tuple(None if value is None else place(value) for value in values)


# -- by prompt ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """What comparing needs of one ended run."""

    request: Request
    fingerprint: Fingerprint
    summary: Summary


@dataclass(frozen=True, slots=True)
class PromptRow:
    """The runs of one prompt. ``members``: their numbers; ``changes``: one each, against run number ``base``;
    ``widest``: the largest relative change among them, None where none can be taken."""

    prompt_hash: str
    prompt: str
    members: tuple[int, ...]
    base: int
    changes: tuple[Change, ...]
    widest: float | None


def by_prompt(runs: Sequence[Compared], base: int, name: str) -> list[PromptRow]:
    """Runs grouped by prompt hash, prompts with one run left out; in each group the baseline is the run that is set as
    run ``base`` is, else its first."""
    groups: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run.fingerprint.prompt_hash, []).append(number)
    rows = []
    for prompt_hash, members in groups.items():
        if len(members) < 2:
            continue
        reference = _reference(runs, members, base)
        found = changes(name, [runs[number].summary for number in members], members.index(reference))
        shares = [abs(change.share) for change in found if change.share is not None]
        prompt = runs[reference].request.prompt
        rows.append(PromptRow(prompt_hash, prompt, tuple(members), reference, found, max(shares, default=None)))
    return rows


def configuration(request: Request) -> Request:
    """The request without its prompt and seed: what several prompts are decoded with alike."""
    return request.model_copy(update={"prompt": "-", "seed": 0})


def _reference(runs: Sequence[Compared], members: Sequence[int], base: int) -> int:
    if base in members:
        return base
    wanted = runs[base].request
    seeded = [n for n in members if runs[n].request.model_copy(update={"prompt": wanted.prompt}) == wanted]
    alike = [n for n in members if configuration(runs[n].request) == configuration(wanted)]
    return next(iter([*seeded, *alike, *members]))
