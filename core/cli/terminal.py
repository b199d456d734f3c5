"""Output of headless decoding: coloured text in a terminal, or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.records import Ended, Fate, Round, Started, Summary, to_plain
from core.results.glossary import GLOSSARY
from core.rules.catalogue import RULES
from core.streams import holds_every_character, visible

if TYPE_CHECKING:
    from core.lab.emission import Emission
    from core.lab.losslessness import Verdict

STYLES = {"accepted": "green", "correction": "bold underline blue", "bonus": "magenta", "none": ""}
"""Style of an output token by its origin; corrections are underlined as well as coloured."""

FATES: tuple[Fate, ...] = ("accepted", "rejected", "unreached", "cut")

SHOWN = (
    "output_tokens",
    "rounds",
    "tokens_per_round",
    "draft_acceptance_rate",
    "path_acceptance",
    "tokens_per_second",
    "ttft_s",
    "draft_s",
    "verify_s",
    "state_s",
    "other_s",
    "distortion_s",
    "distortion_kl",
    "distortion_tv",
    "escaped_mass",
    "overshoot",
    "peak_memory_bytes",
)


class JsonLines:
    """Display that prints one JSON object per round, then the summary, with the field names of metrics.md. Progress
    goes to standard error."""

    def loading(self, message: str, share: float) -> None:
        """Progress on standard error."""
        print(f"{share:4.0%} {message}", file=sys.stderr)

    def note(self, sentence: str) -> None:
        """The notice on standard error."""
        print(f"Note: {sentence}", file=sys.stderr)

    def started(self, started: Started) -> None:
        """Print nothing: the summary repeats these fields."""

    def round(self, one: Round) -> None:
        """Print the round's record with its counts."""
        counts = {"drafted": one.drafted} | {fate: one.count(fate) for fate in FATES}
        self._write(to_plain(one) | counts)

    def ended(self, ended: Ended, summary: Summary) -> None:
        """Print the summary, with the request's index and its error."""
        self._write({"request": ended.request} | to_plain(summary) | {"error": ended.error})

    def _write(self, fields: dict[str, Any]) -> None:
        plain = not holds_every_character(sys.stdout)
        print(json.dumps(fields, ensure_ascii=plain, allow_nan=False), flush=True)


class Terminal:
    """Display that prints the text as it is yielded, each token in the colour of its origin, then the metrics."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.notes = Console(stderr=True, highlight=False)
        self._alone = True

    def loading(self, message: str, share: float) -> None:
        """Progress on standard error."""
        self.notes.print(Text(f"{share:4.0%} {message}", style="dim"))

    def note(self, sentence: str) -> None:
        """The notice on standard error."""
        self.notes.print(Text(f"Note: {sentence}"))

    def started(self, started: Started) -> None:
        """Print a legend above the first text. Texts of a batch are labelled, because their rounds alternate."""
        if started.request == 0:
            legend = Text.assemble(("accepted ✓", STYLES["accepted"]), "  ", ("correction ↻", STYLES["correction"]))
            self.console.print(legend.append("  ").append("bonus ★", STYLES["bonus"]))
        self._alone = started.request == 0 and self._alone

    def round(self, one: Round) -> None:
        """Print the round's text."""
        if not self._alone:
            self.console.print(Text(f"[{one.request}] ", style="dim"), end="")
        self.console.print(coloured(one), end="" if self._alone else "\n")

    def ended(self, ended: Ended, summary: Summary) -> None:
        """Print the metrics and, after a failure, its sentence."""
        self.console.print()
        table = Table(title=f"request {ended.request}: {ended.stop_reason}", show_header=False, title_justify="left")
        plain = to_plain(summary)
        for name in SHOWN:
            value = plain[name]
            shown = "–" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
            table.add_row(GLOSSARY[name].label, shown, GLOSSARY[name].unit)
        self.console.print(table)
        if ended.error:
            self.notes.print(Text(f"Error: {visible(ended.error)}", style="bold red"))


def rule_json(one: Emission) -> None:
    """Print one rule as a JSON object: its vectors by token, its divergences from p in nats. ``kl`` is null if the law
    leaves p's support; ``escaped_mass`` is the law's mass outside that support."""
    fields = {
        "rule": one.rule,
        "accept": one.accept,
        "acceptance_mass": one.mass,
        "residual": one.residual,
        "induced": one.induced,
        "tv": one.tv,
        "kl": one.kl,
        "escaped_mass": one.escaped,
    }
    print(json.dumps(fields, ensure_ascii=False))


def verdict_json(one: Verdict) -> None:
    """Print one rule's test as a JSON object."""
    fields = {
        "rule": one.rule,
        "follows": one.follows,
        "tested_against": "p" if one.lossless else "induced",
        "tv": one.tv,
        "samples": one.test.samples,
        "chi_square": one.test.statistic,
        "degrees": one.test.degrees,
        "p_value": one.test.p_value,
        "impossible": one.test.impossible,
    }
    print(json.dumps(fields, ensure_ascii=False))


def catalogue_table() -> None:
    """Print every rule of the catalogue: how it is written, what it accepts and redraws, its source."""
    table = Table("rule", "written", "accept", "redraw", "source", box=box.SIMPLE_HEAD)
    for entry in RULES:
        table.add_row(entry.label, entry.usage, entry.accept, entry.redraws, entry.source)
    _print_wide(table)


def rule_table(rows: Sequence[Emission]) -> None:
    """Print the table of rules, with six significant digits per probability."""
    table = Table("rule", "accept", "mass", "residual", "induced", "TV to p", "KL to p, nats", box=box.SIMPLE_HEAD)
    for row in rows:
        vectors = ("  ".join(f"{value:.6g}" for value in part) for part in (row.accept, row.residual, row.induced))
        accept, residual, law = vectors
        kl = f"∞ ({row.escaped:.4g} escapes)" if row.kl is None else f"{row.kl:.5f}"
        table.add_row(row.rule, accept, f"{row.mass:.6g}", residual, law, f"{row.tv:.4f}", kl)
    _print_wide(table)


def _print_wide(table: Table) -> None:
    wide = max(Console().width, 200) if not sys.stdout.isatty() else None
    Console(highlight=False, markup=False, width=wide).print(table)


def coloured(one: Round) -> Text:
    """A round's output text, each token in the colour of its origin; text of plain rounds is not coloured."""
    text = Text()
    for i, piece in enumerate(one.committed_text):
        origin = "accepted" if i < one.accepted else one.source
        text.append(visible(piece), STYLES[origin] if one.nodes else "")
    return text
