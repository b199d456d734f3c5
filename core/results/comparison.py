"""Runs side by side: signed changes of their metrics against a baseline, and runs grouped by prompt.

Changes are plain differences. Whether they are due to the drafting is a question of matching (``matching.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.records import Fingerprint, Summary
from core.results.glossary import GLOSSARY
from core.results.metrics import ROUNDING, ratio
from core.types import Request, is_lossless

NEGLIGIBLE = 5e-4
"""Relative change below which neither run counts as better."""

TIMED = frozenset({"s", "tokens/s", "×"})
"""Units of what a clock measured: one run of each can't tell better from worse, since two runs of the same settings
differ by some per cent (docs/performance.md)."""

DISTORTIONS = frozenset({"distortion_kl", "distortion_tv", "escaped_mass"})


# -- lossy rules ------------------------------------------------------------------------------------------------------


def lossy_notices(base: tuple[Request, Fingerprint], run: tuple[Request, Fingerprint]) -> list[str]:
    """Notices, as sentences, for a comparison in which either run has a lossy rule (rules.md §1 "matched baseline").

    Empty for two lossless runs.
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
    """One metric of one run, against the baseline's.

    ``change``: value − baseline, in the metric's unit; ``share``: change over the baseline's value, None if that is 0;
    ``better``: None if the metric has no direction or is a time, if the change is negligible, or if the values can't be
    compared.
    """

    value: float | None
    change: float | None = None
    share: float | None = None
    better: bool | None = None


def measured(name: str, summary: Summary) -> float | None:
    """A run's value of a metric that ``Summary`` holds; a distortion within rounding is 0."""
    value = getattr(summary, name)
    return 0.0 if name in DISTORTIONS and value is not None and value < ROUNDING else value


def changes(name: str, summaries: Sequence[Summary], base: int) -> tuple[Change, ...]:
    """The metric of each run, with its signed change against run number ``base`` (which has no change itself).

    Peak memory is compared only as device memory: the peak of a process includes every run since it started.
    """
    reference = summaries[base]
    values = [measured(name, summary) for summary in summaries]
    found = changed(name, values, base)
    if name == "peak_memory_bytes":
        kinds = {"cuda_allocated"}
        both = [{summary.peak_memory_kind, reference.peak_memory_kind} == kinds for summary in summaries]
        return tuple(change if ok else Change(change.value) for change, ok in zip(found, both, strict=True))
    return found


def changed(name: str, values: Sequence[float | None], base: int) -> tuple[Change, ...]:
    """Changes as in :func:`changes`, from values computed elsewhere (a speed-up)."""
    return tuple(
        Change(value) if place == base else _change(name, value, values[base]) for place, value in enumerate(values)
    )


def _change(name: str, value: float | None, reference: float | None) -> Change:
    if value is None or reference is None:
        return Change(value)
    change = value - reference
    metric = GLOSSARY[name]
    better = None if metric.unit in TIMED else metric.better
    share = ratio(change, abs(reference)) if reference else None
    same = change == 0 or (share is not None and abs(share) < NEGLIGIBLE)
    return Change(value, change, share, None if better is None or same else (change > 0) == (better == "higher"))


def scaled(name: str, values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Values on a parallel axis from 0 to 1, better values higher (lower-is-better metrics are inverted); if all
    values are equal, they are in the middle."""
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
    """Parts of an ended run that a comparison needs."""

    request: Request
    fingerprint: Fingerprint
    summary: Summary


@dataclass(frozen=True, slots=True)
class PromptRow:
    """Runs of one prompt. ``members``: their numbers; ``changes``: one per run, against run number ``base``;
    ``widest``: the largest relative change, None if no run has one."""

    prompt_hash: str
    prompt: str
    members: tuple[int, ...]
    base: int
    changes: tuple[Change, ...]
    widest: float | None


def by_prompt(runs: Sequence[Compared], base: int, name: str) -> list[PromptRow]:
    """Runs grouped by prompt hash, without prompts that have one run. The baseline of a group is the run with the same
    settings as run ``base``, else the group's first."""
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
    """The request without its prompt and seed: the settings that runs of several prompts share."""
    return request.model_copy(update={"prompt": "-", "seed": 0})


def _reference(runs: Sequence[Compared], members: Sequence[int], base: int) -> int:
    if base in members:
        return base
    wanted = runs[base].request
    seeded = [n for n in members if runs[n].request.model_copy(update={"prompt": wanted.prompt}) == wanted]
    alike = [n for n in members if configuration(runs[n].request) == configuration(wanted)]
    return next(iter([*seeded, *alike, *members]))
