"""One run on the page: status, text, numbers, rounds. Live and History both draw runs with this module."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.records import Round
from pages.ui.kit import charts, notices, numbers, parts
from pages.ui.kit.runs import Shown, rounds, speed_up
from pages.ui.kit.services import Services
from pages.ui.rounds import counterparts, inspector, tokens, trees

WINDOW = 30
"""Rounds drawn at once: the latest during the run, one page of rounds afterwards."""

TEXT_ROUNDS = 300
"""Most rounds whose text is drawn with origins; a longer run shows the latest rounds, or those of the page."""

TAIL_HEIGHT = 430
"""Height of the scrolling list of rounds, in pixels, so that the inspector below stays in view."""

FEW = 10
"""Most rounds of an ended run that are listed at full height, without scrolling."""


def draw(services: Services, run: Shown) -> None:
    """Draw the whole run."""
    head(run)
    if run.summary is None:
        return
    shown = window(services, run)
    text(services, run, shown)
    numbers_part(services, run)
    counterparts.section(services, run)
    _notices(run)
    rounds_part(run, shown, pages=not run.active)


def head(run: Shown) -> None:
    """Draw the run's status, and why it ended unless by its own stop."""
    st.html(parts.status_line(run))
    if run.error:
        st.html(parts.note("bad", run.error, f"The run {_ENDED.get(run.status, 'ended')}."))
    elif run.message and not run.active:
        st.html(parts.note("bad", run.message))
    _ended_without_rounds(run)


_ENDED = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}


def numbers_part(services: Services, run: Shown) -> None:
    """Draw the run's metrics, if it has any, and its stage times."""
    if run.summary is None:
        return
    ratio = speed_up(services, run)
    st.html(parts.cards(run, run.summary, ratio))
    if ratio is None:
        counterparts.offer_plain(services, run)
    if run.total and not run.active:  # a chart redrawn at every tick would take processor time from the engine
        st.plotly_chart(
            charts.stage_times(run.summary),
            config=charts.CONFIG,
            key=f"stages_{run.run_id}",
            alt="Time spent drafting, verifying, keeping state, and otherwise.",
        )


def _ended_without_rounds(run: Shown) -> None:
    if run.total or run.active:
        return
    if run.status == "cancelled":
        st.html(parts.empty("Stopped before the first round", "Nothing was decoded. Press Run to start again."))
    elif run.status == "interrupted":
        st.html(parts.empty("Interrupted before the first round", "The app ended while this run waited. Run it again."))


def window(services: Services, run: Shown) -> Sequence[Round]:
    """Rounds to draw: the latest of an active run, else the chosen page."""
    if run.active:
        first = max(0, run.total - WINDOW)
        first -= first % trees.BLOCK
        return rounds(services, run, first, run.total - first)
    pages = max(1, -(-run.total // WINDOW))
    page = min(int(st.session_state.get(_page_key(run), 1)), pages)
    return rounds(services, run, (page - 1) * WINDOW, WINDOW)


def _page_key(run: Shown) -> str:
    return f"page_{run.run_id}"


def text(services: Services, run: Shown, shown: Sequence[Round]) -> None:
    """Draw the output, each token with its origin, and the whole text to copy."""
    whole = run.total <= TEXT_ROUNDS
    start = max(0, run.total - TEXT_ROUNDS) if run.active else 0
    part = rounds(services, run, start, run.total - start) if run.active or whole else shown
    if not whole:
        which = "the latest rounds" if run.active else "the rounds of this page"
        st.caption(f"Text of {which}; the whole text is below.")
    text_part(run, part)
    if not run.active and run.summary is not None and run.summary.text:
        with st.expander("Plain text to copy"):
            st.code(run.summary.text.encode("utf-8", "replace").decode(), language=None, wrap_lines=True)


def text_part(run: Shown, part: Sequence[Round]) -> None:
    """Draw the text of these rounds, each token with its origin."""
    lead = "" if part and part[0].index == 0 else "… "
    body = tokens.output(part, run.plain)
    if body:
        st.html(f'<div class="sl-text" aria-label="Output">{lead}{body}</div>')
    elif run.active:
        st.html('<div class="sl-text" aria-label="Output"><i class="sl-ws">waiting for the first token …</i></div>')


def _notices(run: Shown) -> None:
    if run.early_exit:
        share = run.recomputed_share
        more = f" Verification recomputes {numbers.rate(share)} of the layers." if share else ""
        st.html(parts.note("warn", notices.EARLY_EXIT + more))
    if run.lossy:
        st.html(parts.note("warn", notices.LOSSY))
    elif not run.plain and not run.active:
        notices.folded()


def rounds_part(run: Shown, shown: Sequence[Round], *, pages: bool = False) -> None:
    """Draw the rounds ``shown`` row by row, and the inspector below. They are any consecutive rounds of the run: a
    replay shows the rounds so far.

    ``pages``: offer the run's other pages of :data:`WINDOW` rounds.
    """
    rows = st.container(key=f"rounds_{run.run_id}")
    inspected = inspector.section(run, shown)
    with rows:
        listing(run, shown, pages=pages, numbered=inspected)


def listing(run: Shown, shown: Sequence[Round], *, pages: bool = False, numbered: bool = False) -> None:
    """Draw the rows alone. ``numbered``: a click on a round's number shows that round in the run's open inspector."""
    if not shown:
        return
    title = f"Rounds {shown[0].index + 1}–{shown[-1].index + 1} <small>of {numbers.quantity(run.total)}</small>"
    with parts.headline(f"rounds_head_{run.run_id}"):
        st.html(f'<h3 class="sl-h">{title}</h3>', width="content")
        if pages and run.total > WINDOW:
            st.pagination(-(-run.total // WINDOW), key=_page_key(run))
    states = ["plain"] if run.plain else ["accepted", "rejected", "unreached", "correction", "bonus"]
    if not run.plain and any(tokens.origin(r) == "plain" for r in shown):
        states.append("plain")
    if any(node.fate == "cut" for r in shown for node in r.nodes):
        states.insert(3, "cut")
    st.html(tokens.legend(states))
    height = TAIL_HEIGHT if run.active or len(shown) > FEW else "content"
    # CSS keeps an active run's list scrolled to its end: Streamlit's autoscroll would check sixty times a second.
    kept = st.container(height=height, border=False, key=f"{'tail' if run.active else 'whole'}_{run.run_id}")
    with kept, st.container(key=f"roundlist_{run.run_id}"):
        for block in trees.blocks(shown):
            st.html(trees.rows(block, run.plain, run.run_id if numbered else ""))
