"""Two outputs side by side, with the first difference named and the others marked. Model text stays inert."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.results.divergence import MAX_COMPARED, Divergence, Stretch, Token, diverge, emitted
from pages.ui.kit import notices, numbers, parts
from pages.ui.kit.glyphs import chip_text, flow_text
from pages.ui.kit.services import Services
from pages.ui.kit.sides import Side, bursts

AGAINST = "compare_text_against"

LEAD_CHARACTERS = 1200
"""Most characters of a common beginning shown before the first difference."""

LOOKS = {"both": "sl-same", "base": "sl-gone", "other": "sl-new"}


def draw(services: Services, sides: Sequence[Side], base: int) -> None:
    """Draw the baseline's text beside another run's."""
    with parts.headline("compare_text_head"):
        st.html('<h3 class="sl-h">Text <small>token by token, against the baseline</small></h3>')
        other = _chosen(sides, base)
    first, second = sides[base], sides[other]
    by_id = _same_tokenizer(first, second)
    found = diverge(_tokens(services, first), _tokens(services, second), by_id=by_id)
    st.html(_sentence(found, first, second))
    if not by_id:
        st.caption("The tokenizers differ, so tokens are compared by their text.")
    if not found.aligned:
        most = numbers.quantity(MAX_COMPARED)
        st.caption(f"The {most} tokens after the first difference are aligned; all that follows counts as different.")
    if found.identical:
        if found.shared:
            st.html(_column(first, found.base_part, "base", second))
    else:
        with st.container(key="compare_texts"):
            left, right = st.columns(2, gap="medium")
        left.html(_column(first, found.base_part, "base"))
        right.html(_column(second, found.other_part, "other"))
    _notices(found, first, second)


def _chosen(sides: Sequence[Side], base: int) -> int:
    others = [place for place in range(len(sides)) if place != base]
    if len(others) == 1:
        return others[0]
    picked = st.segmented_control(
        "Against",
        others,
        default=others[0],
        format_func=lambda place: sides[place].mark.letter,
        required=True,
        label_visibility="collapsed",
        key=f"{AGAINST}_{'_'.join(side.run.run_id[-6:] for side in sides)}_{base}",
    )
    return picked if picked in others else others[0]


def _same_tokenizer(first: Side, second: Side) -> bool:
    a, b = first.run.fingerprint, second.run.fingerprint
    return a is None or b is None or a.tokenizer_hash == b.tokenizer_hash


def _tokens(services: Services, side: Side) -> list[Token]:
    return emitted(bursts(services, side.run))


def _sentence(found: Divergence, first: Side, second: Side) -> str:
    """Sentence on where the two texts diverge."""
    a, b = first.mark.letter, second.mark.letter
    count = numbers.quantity(found.shared)
    if found.identical:
        text = "Both outputs are empty." if not found.shared else f"Identical: all {count} tokens are equal."
        return f'<p class="sl-where" data-shared="{found.shared}">{text}</p>'
    begin = "The very first token differs" if not found.shared else f"The first {count} tokens are equal"
    if found.shared == 1:
        begin = "The first token is equal"
    return (
        f'<p class="sl-where" data-shared="{found.shared}">{begin}; at token '
        f"{numbers.quantity(found.shared + 1)} {_said(a, found.base)} and {_said(b, found.other)}.</p>"
    )


def _said(letter: str, token: Token | None) -> str:
    return f"{letter} has ended" if token is None else f"{letter} says <code>{chip_text(token.shown)}</code>"


def _column(side: Side, stretches: Sequence[Stretch], which: str, also: Side | None = None) -> str:
    marks = side.badge() + (f" {also.badge()}" if also else "")
    body = "".join(_stretch(stretch, place == 0) for place, stretch in enumerate(stretches))
    if not body:
        body = '<i class="sl-ws">no tokens</i>'
    names = side.mark.letter + (f" and {also.mark.letter}" if also else "")
    return (
        f'<div class="sl-side">{marks}<div class="sl-text" data-side="{which}" tabindex="0" role="region" '
        f'aria-label="Output of {names}">{body}</div></div>'
    )


def _stretch(stretch: Stretch, first: bool) -> str:
    text, lead = stretch.text, ""
    if first and stretch.where == "both" and len(text) > LEAD_CHARACTERS:
        text = text[-LEAD_CHARACTERS:]
        lead = '<i class="sl-ws">… equal up to here …</i> '
    body = flow_text(text)
    if stretch.where == "both":
        return lead + body
    title = "only in the baseline" if stretch.where == "base" else "not in the baseline"
    return f'<mark class="{LOOKS[stretch.where]}" title="{title}">{body}</mark>'


def _notices(found: Divergence, first: Side, second: Side) -> None:
    """Draw why texts with the same seed may diverge."""
    one, other = first.run.spec.request, second.run.spec.request
    if found.identical or one.prompt != other.prompt:
        return
    if one.sampling.greedy and other.sampling.greedy:
        notices.show(notices.PRECISION)
    elif one.seed == other.seed:
        notices.show(notices.SAME_SEED, notices.PRECISION)
