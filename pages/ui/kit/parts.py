"""Small pieces of every page as inert HTML: notes, empty states, status line, metric cards, settings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.grammar import format_drafter, format_rule, format_shape, sampling_parts
from core.records import Summary
from core.results.counterparts import baseline
from core.results.glossary import GLOSSARY
from core.types import Lossless, RunSpec
from pages.ui.kit import numbers, palette
from pages.ui.kit.runs import Shown
from pages.ui.kit.sides import label

Kind = Literal["info", "warn", "bad"]

UNKNOWN_RUN = "The link names a run that is not here: it was deleted, or belongs to another data folder."


def note(kind: Kind, text: str, lead: str = "") -> str:
    """One important sentence with its next step. Its ``role`` makes screen readers announce failures at once."""
    role = "alert" if kind == "bad" else "note"
    bold = f"<b>{escape(lead)}</b> " if lead else ""
    return f'<div class="sl-note sl-{kind}" role="{role}">{bold}{escape(text)}</div>'


def empty(title: str, text: str) -> str:
    """An empty state: what is missing and how to get it."""
    return f'<div class="sl-empty"><strong>{escape(title)}</strong>{escape(text)}</div>'


def headline(key: str) -> DeltaGenerator:
    """A line whose first element is at the left edge and whose last is at the right edge."""
    return st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key=key)


def badge(status: str) -> str:
    """Badge of a run's status, or of ``paused``: colour, mark and word."""
    look = palette.PAUSED if status == palette.PAUSED.name else palette.STATUSES[status]
    return f'<span class="sl-badge sl-is-{look.name}" title="{escape(look.meaning, quote=True)}">{look.label}</span>'


def status_line(run: Shown) -> str:
    """The run's status, progress and duration."""
    status = palette.PAUSED.name if run.halted else run.status
    bits = _progress_words(run)
    if run.paused and not run.halted:
        bits.append("will pause before its first round")
    if run.started_at is not None:
        bits.append(
            f"{numbers.elapsed(run.started_at, run.ended_at)} {'elapsed' if run.active else 'total, loading included'}"
        )
    line = "".join(f"<span>{escape(bit)}</span>" for bit in bits)
    return f'<div class="sl-status" data-status="{status}">{badge(status)}{line}</div>{_progress_bar(run)}'


def _progress_words(run: Shown) -> list[str]:
    """The place in the queue, the loading step, or tokens and rounds so far; for an ended run, its stop reason."""
    if run.status == "queued":
        return ["next in the queue" if run.position <= 1 else f"number {run.position} in the queue"]
    s = run.summary
    if s is None:
        return [run.message or "starting the engine …"] if run.status == "running" else []
    of = f" of at most {numbers.quantity(run.spec.request.stops.max_new_tokens)}" if run.active else ""
    word = "token" if s.output_tokens == 1 and not of else "tokens"
    bits = [
        f"{numbers.quantity(s.output_tokens)}{of} {word}",
        f"{numbers.quantity(run.total)} {'round' if run.total == 1 else 'rounds'}",
    ]
    if run.active:
        return bits + ([run.message] if run.message else [])
    if s.stop_reason != run.status:
        bits.append(f"stop: {s.stop_reason.replace('_', ' ')}")
    return [*bits, f"decoding {numbers.seconds(s.decode_s)}"]


def _progress_bar(run: Shown) -> str:
    """Bar of the share of loading, then of the token limit; empty if the share is unknown or the run has ended."""
    share = run.progress
    if share is None and run.status == "running" and run.summary is not None:
        share = min(1.0, run.summary.output_tokens / run.spec.request.stops.max_new_tokens)
    if share is None or not run.active:
        return ""
    done = f'<i style="width:{share:.0%}"></i>'
    return f'<div class="sl-bar" role="progressbar" aria-label="Done" aria-valuenow="{100 * share:.0f}">{done}</div>'


def cards(run: Shown, summary: Summary, speed_up: float | None) -> str:
    """The run's numbers, each with its unit; hover or focus gives the definition."""
    s = summary
    acceptance = "draft_acceptance_rate" if run.chain or run.plain else "path_acceptance"
    shown: list[tuple[str, str, str]] = []
    if not run.plain:
        shown.append(("speed_up", numbers.ratio(speed_up), ""))
    shown += [
        ("tokens_per_second", numbers.quantity(s.tokens_per_second, 1), ""),
        ("tokens_per_round", numbers.quantity(s.tokens_per_round), ""),
    ]
    if not run.plain:
        counts = f"Here: {numbers.quantity(s.accepted)} accepted of {numbers.quantity(s.drafted)} drafted."
        shown += [
            (acceptance, numbers.rate(getattr(s, acceptance)), counts),
            ("accepted_length", numbers.quantity(s.accepted_length), counts),
            ("rounds_without_draft", numbers.quantity(s.rounds_without_draft), f"Here: of {s.rounds:,} rounds."),
        ]
    if s.distortion_positions:
        notes = distortion_notes(run.spec, s)
        shown += [
            ("distortion_kl", numbers.nats(s.distortion_kl), notes),
            ("distortion_tv", numbers.rate(s.distortion_tv), notes),
        ]
    shown += [
        ("ttft_s", numbers.seconds(s.ttft_s), ""),
        ("peak_memory_bytes", numbers.size(s.peak_memory_bytes), _MEMORY.get(s.peak_memory_kind or "", "")),
    ]
    items = [_card(name, value, more, far=place % 4 >= 2) for place, (name, value, more) in enumerate(shown)]
    return f'<dl class="sl-cards">{"".join(items)}</dl>'


def distortion_notes(spec: RunSpec, s: Summary) -> str:
    """The law against which distortion is measured, and why; positions measured, mass escaped, time spent measuring."""
    bits = [f"Against the lossless baseline. {baseline(spec.request).reason}"]
    if isinstance(spec.request.rule, Lossless):
        bits = ["Against the target's own law: what is left is rounding."]
    bits.append(f"Here: over {numbers.quantity(s.distortion_positions)} tested positions.")
    if s.distortion_kl_undefined:
        bits.append(
            f"In {numbers.quantity(s.distortion_kl_undefined)} of them the rule can emit what the law never does: they "
            f"have no KL; {numbers.rate(s.escaped_mass)} of all probability escapes."
        )
    if s.distortion_conditional:
        bits.append(f"{numbers.quantity(s.distortion_conditional)} are conditional on the tokens tried.")
    if s.overshoot is not None:
        bits.append(f"Overshoot: {numbers.rate(s.overshoot)} of tested tokens.")
    bits.append(f"Measuring took {numbers.seconds(s.distortion_s)}, which no other time or rate contains.")
    return " ".join(bits)


_MEMORY = {
    "process_rss": "Here: the worker process's peak resident memory.",
    "cuda_allocated": "Here: the device's peak allocated memory.",
}


def _card(name: str, value: str, more: str, far: bool) -> str:
    metric = GLOSSARY[name]
    bare = metric.unit in numbers.OWN_UNIT or value == numbers.NOTHING
    unit = "" if bare else f"<small>{escape(metric.unit)}</small>"
    tip = escape(f"{metric.label}: {metric.definition}" + (f"\n{more}" if more else ""), quote=True)
    side = " sl-far" if far else ""
    return (
        f'<div class="sl-card sl-tip{side}" data-metric="{name}" tabindex="0" aria-label="{tip}">'
        f"<dt>{escape(metric.label)}</dt><dd>{escape(value)}{unit}</dd></div>"
    )


def value_cards(shown: Sequence[tuple[str, str, str]]) -> str:
    """Cards of (label, value, definition) for numbers that are not metrics of a run."""
    items = []
    for place, (name, value, definition) in enumerate(shown):
        tip = escape(f"{name}: {definition}", quote=True)
        side = " sl-far" if place % 4 >= 2 else ""
        items.append(
            f'<div class="sl-card sl-tip{side}" tabindex="0" aria-label="{tip}">'
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        )
    return f'<dl class="sl-cards">{"".join(items)}</dl>'


def settings(spec: RunSpec) -> list[tuple[str, str]]:
    """The run's settings, in the words of the form and the command line."""
    r = spec.request
    odd = [f"{name} {value}" for name, value in sampling_parts(r.sampling).items()]
    warmth = "greedy" if r.sampling.greedy else f"temperature {r.sampling.temperature:g}"
    rows = [
        ("Pair", f"{spec.pair.name} · {spec.pair.precision}"),
        ("Drafter", format_drafter(r.drafter)),
        ("Shape", format_shape(r.shape)),
        ("Rule", format_rule(r.rule)),
        ("Sampling", ", ".join([warmth, *odd])),
        ("Max new tokens", numbers.quantity(r.stops.max_new_tokens)),
        ("Seed", str(r.seed)),
        ("Chat template", "on" if r.chat else "off"),
    ]
    if r.stops.stop_strings:
        rows.insert(6, ("Stop strings", ", ".join(map(repr, r.stops.stop_strings))))
    return rows


def shown_line(runs: Sequence[Shown], changed: bool) -> str:
    """What the page shows, in one line: configurations, pair, temperature and time. ``changed``: the form beside it
    asks for something else by now."""
    first = runs[0]
    what = " against ".join(label(run.spec) for run in runs)
    warmth = f"T {first.spec.request.sampling.temperature:g}"
    bits = "".join(
        f"<span>{escape(bit)}</span>" for bit in (first.spec.pair.name, warmth, numbers.moment(first.submitted_at))
    )
    other = '<span class="sl-changed" data-changed>settings of the form differ</span>' if changed else ""
    return f'<div class="sl-status sl-shown" aria-label="Shown"><b>{escape(what)}</b>{bits}{other}</div>'


def pairs_list(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values side by side."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f'<dl class="sl-dl">{items}</dl>'
