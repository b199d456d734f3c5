"""The verdict that opens the page: whether the runs are matched, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import streamlit as st

from core.records import UNKNOWN
from core.results.comparison import lossy_notices
from core.results.matching import RECORDED_LATER, Difference, Relation, relation, word
from pages.ui.kit import notices, parts
from pages.ui.kit.sides import Side, excerpt, letters

FIELDS = {
    "target": "target", "target_hash": "target's weights", "draft": "draft", "draft_hash": "draft's weights",
    "precision": "precision", "tokenizer_hash": "tokenizer", "template_hash": "prompt template",
    "sampling": "sampling", "reference_law": "reference law", "stops": "stops", "cache_policy": "cache policy",
    "drafting": "drafting", "device": "device", "versions": "library versions", "seed": "seed",
    "prompt_hash": "prompt", "rule": "rule", "prompt_ids_hash": "prompt's tokens", "end_tokens": "end tokens",
    "batch": "batch size",
}  # fmt: skip
"""Fields of a fingerprint in words."""

HASHED = frozenset({"target_hash", "draft_hash", "tokenizer_hash", "template_hash", "prompt_hash", "prompt_ids_hash"})
SHOWN_HASH = 10

_STATES = {
    "matched": '<span class="sl-yes">✓ matched</span>',
    "budget": '<span class="sl-no2">≠ other budget</span>',
    "candidates": '<span class="sl-no2">≠ other candidates</span>',
    "differs": '<span class="sl-no2">≠ not matched</span>',
}
"""A run against the baseline, by the word for the two."""


def draw(sides: Sequence[Side], base: int) -> None:
    """Draw the verdict, the runs, and the warnings that apply to the numbers below."""
    relations = [_relation(sides[base], side) for side in sides]
    kind, lead, text = verdict(sides, relations, base)
    st.html(f'<div data-verdict="{kind}">{parts.note("info" if kind == "matched" else "warn", text, lead)}</div>')
    st.html(_table(sides, relations, base))
    for lead, text in _warnings(sides, base):
        st.html(parts.note("warn", text, lead))
    if any(found and found.other_target for found in relations):
        notices.show(notices.OTHER_TARGET)


def verdict(sides: Sequence[Side], relations: Sequence[Relation | None], base: int) -> tuple[str, str, str]:
    """Verdict ``matched``, ``budget``, ``candidates``, ``differs`` or ``unknown``, with its mark and sentence."""
    first = sides[base].mark.letter
    others = [(side, found) for place, (side, found) in enumerate(zip(sides, relations, strict=True)) if place != base]
    unknown = [side for side, found in others if found is None]
    if unknown:
        which = letters(unknown)
        text = f"Of {which} or of {first} it is not known what it ran on: it ended before its prompt was read."
        return "unknown", "Not comparable.", text
    odd = [(side, found) for side, found in others if found is not None and not found.matched]
    if odd:
        return "differs", "≠ Not matched.", _why(odd, first)
    words = [
        (side, word(found, sides[base].run.spec.request, side.run.spec.request)) for side, found in others if found
    ]
    if unlike := [side for side, one in words if one == "budget"]:
        budgets = ", ".join(f"{side.mark.letter} {_budget(side)}" for side in [sides[base], *unlike])
        text = (
            f"Nodes verified a round: {budgets}. What changes below may come from the number of candidates alone; "
            "a run's page offers the counterpart with the same budget."
        )
        return "budget", "≠ Other verification budget.", text
    if unlike := [side for side, one in words if one == "candidates"]:
        kinds = ", ".join(f"{side.mark.letter} {_candidates(side)}" for side in [sides[base], *unlike])
        text = (
            f"Candidates: {kinds}. What changes below may come from that and not from the shape; a run's page offers "
            "the chain of the draft's best tokens."
        )
        return "candidates", "≠ Other kind of candidates.", text
    names = _named(difference for _, found in others if found for difference in found.tested)
    if not names:
        return "matched", "✓ Matched.", "Not one setting differs: what changes below is the measurement's own spread."
    return "matched", "✓ Matched.", f"Nothing but {names} differs from {first}: like is compared with like."


def _why(odd: Sequence[tuple[Side, Relation]], first: str) -> str:
    """What else than the settings under test differs, or isn't known."""
    confounding = [difference for _, found in odd for difference in found.confounding]
    names = _named(difference for difference in confounding if not difference.unknown)
    unknown = _named(difference for difference in confounding if difference.unknown)
    which, verb = letters([side for side, _ in odd]), "differs" if len(odd) == 1 else "differ"
    text = f"{which} {verb} from {first} in {names}. " if names else ""
    if unknown:
        text += f"An earlier version of SpecLens stored a run without its {unknown}: whether they differ isn't known. "
    return f"{text}Changes below may come from that as well as from the drafting."


def _budget(side: Side) -> int:
    """Nodes that a round verifies: the candidates and the root."""
    return side.run.spec.request.shape.drafted + 1


def _candidates(side: Side) -> str:
    return "sampled" if side.run.spec.request.samples_candidates else "deterministic"


def _relation(base: Side, side: Side) -> Relation | None:
    if base.run.fingerprint is None or side.run.fingerprint is None:
        return None
    return relation(base.run.fingerprint, side.run.fingerprint)


def _named(found: Iterable[Difference]) -> str:
    names = list(dict.fromkeys(field_name(difference.field) for difference in found))
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def field_name(field: str) -> str:
    """A fingerprint's field in words; ``versions.torch`` is torch's version."""
    head, _, library = field.partition(".")
    return f"{library} version" if library else FIELDS[head]


def field_value(field: str, value: str | None) -> str:
    """A field's value for display, with hashes shortened."""
    if value is None or value == "None":
        return UNKNOWN if field in RECORDED_LATER else "none"
    return value[:SHOWN_HASH] if field in HASHED else value


def _change(difference: Difference) -> str:
    field = difference.field
    if difference.unknown:
        return f"{escape(field_name(field))} unknown"
    if field in HASHED:
        return escape(field_name(field))
    old, new = (escape(field_value(field, value)) for value in (difference.a, difference.b))
    return f"{escape(field_name(field))} <code>{old}</code> → <code>{new}</code>"


def _table(sides: Sequence[Side], relations: Sequence[Relation | None], base: int) -> str:
    rows = "".join(
        _row(side, found, sides[base], place == base)
        for place, (side, found) in enumerate(zip(sides, relations, strict=True))
    )
    return (
        '<div class="sl-cmp sl-runs" tabindex="0" role="region" aria-label="The runs compared"><table><thead><tr>'
        '<th scope="col">Run</th><th scope="col">Prompt</th><th scope="col">Against the baseline</th>'
        '<th scope="col">Under test</th><th scope="col">Also differs</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(side: Side, found: Relation | None, first: Side, base: bool) -> str:
    if base:
        state, tested, also = "<i>baseline</i>", "–", "–"
    elif found is None:
        state, tested, also = "unknown", "–", "–"
    else:
        state = _STATES[word(found, first.run.spec.request, side.run.spec.request)]
        tested = "<br>".join(map(_change, found.tested)) or "nothing"
        also = "<br>".join(map(_change, found.confounding)) or "nothing"
    run = side.run
    early = "" if run.status == "done" else f" {parts.badge(run.status)}"
    prompt = escape(excerpt(run.spec.request.prompt, 60))
    head = f'<th scope="row">{side.badge()} {escape(side.label)}{early}</th>'
    return (
        f'<tr data-run="{escape(run.run_id, quote=True)}">{head}'
        f"<td>{prompt}</td><td>{state}</td><td>{tested}</td><td>{also}</td></tr>"
    )


def _warnings(sides: Sequence[Side], base: int) -> list[tuple[str, str]]:
    """Letters and sentences of the warnings, most important first, each once."""
    found: list[tuple[str, str]] = []
    first = sides[base].compared
    others = [side for place, side in enumerate(sides) if place != base]
    for side in others:
        if first and side.compared:
            pair = (first.request, first.fingerprint), (side.compared.request, side.compared.fingerprint)
            which = f"{sides[base].mark.letter} and {side.mark.letter}:"
            found += [(which, text) for text in lossy_notices(*pair)]
    elsewhere = [side for side in others if side.run.session != sides[base].run.session]
    if elsewhere:
        text = (
            f"Measured in another session of the app than {sides[base].mark.letter}: seconds and memory may differ "
            "because the machine did. Run both in one session to compare speed."
        )
        found.append((f"{letters(elsewhere)}:", text))
    early = [side for side in sides if side.run.status != "done"]
    if early:
        text = "Ended before a stop of its own: the numbers cover the rounds there are."
        found.append((f"{letters(early)}:", text))
    return list(dict.fromkeys(found))
