"""The compared runs, each with the same letter in tables, charts and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape

from core.grammar import format_drafter, format_rule, format_shape
from core.results import traces
from core.results.comparison import Compared
from core.results.traces import Burst
from core.types import RunSpec
from pages.ui.kit import numbers, palette
from pages.ui.kit.glyphs import plain_glyphs
from pages.ui.kit.runs import Shown, rounds
from pages.ui.kit.services import Services

MOST = 10
"""Most runs side by side."""

NAME_WIDTH = 40
"""Characters of a run's name shown before its drafter and shape."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of a run: a letter everywhere; in charts also a colour, a symbol and a dash."""

    letter: str
    colour: str
    symbol: str
    dash: str


MARKS: tuple[Mark, ...] = tuple(
    Mark(*each)
    for each in (
        ("A", palette.GREY, "circle", "solid"),
        ("B", palette.BLUE, "square", "dash"),
        ("C", palette.ORANGE, "diamond", "dot"),
        ("D", palette.GREEN, "triangle-up", "dashdot"),
        ("E", palette.PURPLE, "x", "longdash"),
        ("F", palette.SKY, "cross", "longdashdot"),
        ("G", palette.VERMILLION, "star", "solid"),
        ("H", palette.BLUE, "hexagon", "dot"),
        ("I", palette.GREEN, "pentagon", "solid"),
        ("J", palette.ORANGE, "hourglass", "dash"),
    )
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared runs."""

    mark: Mark
    run: Shown
    given: str = ""
    """Name given to the run by a person; empty without one."""

    @property
    def label(self) -> str:
        """The run's name, if it has one, with drafter, shape, and the rule if it is lossy."""
        return named(self.given, label(self.run.spec))

    @property
    def name(self) -> str:
        """Letter and label, safe in a chart, where Plotly would interpret tags."""
        return f"{self.mark.letter} · {plain(self.label)}"

    @property
    def compared(self) -> Compared | None:
        """The run for core.results.comparison; None if it ended before its prompt was in the cache."""
        if self.run.summary is None or self.run.fingerprint is None:
            return None
        return Compared(self.run.spec.request, self.run.fingerprint, self.run.summary)

    def badge(self) -> str:
        """The letter as HTML."""
        return f'<b class="sl-mark" style="--edge:{self.mark.colour}">{self.mark.letter}</b>'


def label(spec: RunSpec) -> str:
    """``plain``, or drafter, shape and, if it is lossy, the rule."""
    request = spec.request
    drafter, rule = format_drafter(request.drafter), format_rule(request.rule)
    if drafter == "none":
        return "plain"
    return " ".join([drafter, format_shape(request.shape), *([] if rule == "lossless" else [rule])])


def named(name: str | None, what: str) -> str:
    """``what``, preceded by the run's given name, in which invisible characters are made visible."""
    return f"{excerpt(name, NAME_WIDTH)} · {what}" if name else what


def choice_label(spec: RunSpec, submitted_at: datetime | None, name: str | None = None, width: int = 24) -> str:
    """Label of a run in a list of choices: name, drafter and shape, start of the prompt, time (month to second)."""
    prompt = plain(excerpt(spec.request.prompt, width))
    return f"{plain(named(name, label(spec)))} · {prompt} · {numbers.moment(submitted_at)[5:]}"


def excerpt(text: str, width: int) -> str:
    """The start of a prompt on one line, with invisible characters made visible."""
    line = " ".join(text.split())
    return plain_glyphs(line[:width]).replace("␣", " ") + ("…" if len(line) > width else "")


def plain(text: str) -> str:
    """Text for places that interpret markup: angle brackets are replaced by look-alikes."""
    return text.replace("<", "‹").replace(">", "›")


def named_sides(services: Services, runs: Sequence[Shown]) -> list[Side]:
    """The runs with their marks and names, in order."""
    labels = services.runs.labels([run.run_id for run in runs]) if services.runs and runs else {}
    names = [labels[run.run_id].name or "" if run.run_id in labels else "" for run in runs]
    return [replace(side, given=name) for side, name in zip(lettered(runs), names, strict=True)]


def lettered(runs: Sequence[Shown]) -> list[Side]:
    """The runs with their marks alone, in order, without reading names from the store."""
    return [Side(mark, run) for mark, run in zip(MARKS, runs, strict=False)]


def letters(of: Sequence[Side]) -> str:
    """``B``, ``B and C``, ``B, C and D``."""
    names = [side.mark.letter for side in of]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def legend(of: Sequence[Side]) -> str:
    """Letters and labels on one line."""
    items = "".join(f"<span>{side.badge()} {escape(side.label)}</span>" for side in of)
    return f'<div class="sl-legend">{items}</div>'


def bursts(services: Services, run: Shown) -> Sequence[Burst]:
    """The run's bursts of tokens, from the queue's memory or the store."""
    if run.kept_in == "jobs":
        kept = services.jobs.rounds(run.run_id)
        if kept or not services.runs:
            return traces.bursts(kept)
    return services.runs.bursts(run.run_id) if services.runs else traces.bursts(rounds(services, run))
