"""A check of a pair as inert HTML: its progress, or its findings point by point."""

from __future__ import annotations

from html import escape

from core.pairs.checks import CheckView
from core.pairs.findings import Finding, ModelFinding, VocabularyFinding
from pages.ui.kit import numbers
from pages.ui.kit.glyphs import chip_text
from pages.ui.models import pair_facts

_MARKS = {"yes": "✓", "no": "✗", "open": "○"}
_WORDS = {"yes": "passes", "no": "fails", "open": "open"}


def progress(view: CheckView) -> str:
    """The progress of a running check."""
    return bar(f"Checking {view.name}: {view.message} · {numbers.seconds(round(view.seconds, 1))}", view.share)


def bar(message: str, share: float | None) -> str:
    """A message over a progress bar; without a share the bar stays empty."""
    done = share or 0.0
    return (
        f'<div class="sl-status"><span>{escape(message)}</span></div><div class="sl-bar" role="progressbar" '
        f'aria-label="Done" aria-valuenow="{100 * done:.0f}"><i style="width:{done:.0%}"></i></div>'
    )


def verdict(view: CheckView, finding: Finding) -> str:
    """The headline: whether the pair can run here."""
    if finding.problems:
        mark, words = "no", "can't run here"
    elif finding.absent:
        mark, words = "open", "is not on this machine: whether it can run here is not known"
    else:
        mark, words = "yes", "can run here"
    took = f"<small>checked in {numbers.seconds(round(view.seconds, 1))}, no weights were loaded</small>"
    return f'<p class="sl-verdict" data-verdict="{mark}">{_mark(mark)}<b>{escape(view.name)}</b> {words} {took}</p>'


def points(finding: Finding) -> str:
    """What was looked at: files, attention, vocabulary."""
    items = [_point("no", "Name", finding.problem)] if finding.problem else []
    for model in finding.models:
        items += _model_points(model)
    if finding.vocabulary is not None:
        items.append(_vocabulary(finding.vocabulary))
    elif len(finding.models) == 2:
        items.append(_point("open", "Vocabulary", "It can be compared when both tokenizers can be read."))
    facts = pair_facts.models_table([model.description for model in finding.models if model.description is not None])
    return f'<ul class="sl-points">{"".join(items)}</ul>{facts}'


def _model_points(model: ModelFinding) -> list[str]:
    found = []
    if model.here:
        size = model.description.disk_bytes if model.description is not None else None
        text = f"{model.name} is on this machine" + (f" ({numbers.size(size)})." if size is not None else ".")
        found.append(_point("yes", "Files", text))
    else:
        found.append(_point("open", "Files", model.missing))
    if model.refused:
        found.append(_point("no", "Refused", model.refused))
    elif model.attention:
        found.append(
            _point("yes", "Cache", f"{model.name} is {model.attention}; every row can be cut back after a rejection.")
        )
    return found


def _vocabulary(found: VocabularyFinding) -> str:
    if not found.problem:
        return _point("yes", "Vocabulary", f"All {numbers.quantity(found.ids)} ids mean the same token in both.")
    rows = "".join(
        f'<tr><td>{one.id}</td><td><span class="sl-token">{chip_text(one.target)}</span></td>'
        f'<td><span class="sl-token">{chip_text(one.draft)}</span></td></tr>'
        for one in found.first
    )
    table = ""
    if rows:
        more = found.differing - len(found.first)
        rest = (
            f"<caption>and {numbers.quantity(more)} more of {numbers.quantity(found.ids)} ids</caption>" if more else ""
        )
        head = '<tr><th scope="col">id</th><th scope="col">target</th><th scope="col">draft</th></tr>'
        table = f'<table class="sl-diff"><thead>{head}</thead><tbody>{rows}</tbody>{rest}</table>'
    return _point("no", "Vocabulary", found.problem, table)


def _point(mark: str, what: str, text: str, more: str = "") -> str:
    return f"<li>{_mark(mark)}<b>{what}</b><div>{escape(text)}{more}</div></li>"


def _mark(mark: str) -> str:
    return f'<span class="sl-mark-{mark}" role="img" aria-label="{_WORDS[mark]}">{_MARKS[mark]}</span>'
