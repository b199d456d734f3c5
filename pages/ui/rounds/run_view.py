"""One run on the page: status, text, numbers, rounds. Live and History draw runs through here alike."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.records import Round
from pages.ui.kit import charts, notices, numbers, parts
from pages.ui.kit.runs import Shown, rounds, speed_up
from pages.ui.kit.services import Services
from pages.ui.rounds import counterparts, inspector, tokens, trees

WINDOW = 30
"""Rounds drawn at once: the latest while running, a page of them afterwards."""

TEXT_ROUNDS = 300
"""Rounds whose text is drawn with origins; a longer run shows the latest of them, or those of the page."""

TAIL_HEIGHT = 430
"""Height of the scrolling list of rounds, in pixels: the inspector below it stays in sight."""

FEW = 10
"""Rounds that are listed at their own height when the run is over."""


def draw(services: Services, run: Shown) -> None:
    """The whole run."""
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
    """The run's status, and why it ended if not by its own stop."""
    st.html(parts.status_line(run))
    if run.error:
        st.html(parts.note("bad", run.error, f"The run {_ENDED.get(run.status, 'ended')}."))
    elif run.message and not run.active:
        st.html(parts.note("bad", run.message))
    _ended_without_rounds(run)


_ENDED = {"failed": "failed", "cancelled": "was cancelled", "interrupted": "was interrupted"}


def numbers_part(services: Services, run: Shown) -> None:
    """The metrics of a run that has any, and where its time went."""
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
    """The rounds to draw: the tail of an active run, else the page that is chosen."""
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
    """The output, each token with its origin, and the whole of it to copy."""
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
    """The text of these rounds of the run, each token with its origin."""
    lead = "" if part and part[0].index == 0 else "… "
    body = tokens.output(part, run.plain)
    if body:
        st.html(f'<div class="sl-text" aria-label="Output">{lead}{body}</div>')
    elif run.active:
        st.html('<div class="sl-text" aria-label="Output"><i class="sl-ws">waiting for the first token …</i></div>')


def _notices(run: Shown) -> None:
    if run.early_exit:
        share = run.recomputed_share
        more = "" if share is None else f" Verification computes {numbers.rate(share)} of the layers again."
        st.html(parts.note("warn", notices.EARLY_EXIT + more))
    if run.lossy:
        st.html(parts.note("warn", notices.LOSSY))
    elif not run.plain and not run.active:
        notices.folded()


def rounds_part(run: Shown, shown: Sequence[Round], *, pages: bool = False) -> None:
    """These rounds of the run, neighbours in order, row by row, and the inspector below. Any stretch of them: a replay
    shows those so far.

    ``pages``: offer the run's other pages of :data:`WINDOW` rounds.
    """
    rows = st.container(key=f"rounds_{run.run_id}")
    inspected = inspector.section(run, shown)
    with rows:
        listing(run, shown, pages=pages, numbered=inspected)


def listing(run: Shown, shown: Sequence[Round], *, pages: bool = False, numbered: bool = False) -> None:
    """The rows alone. ``numbered``: a round's number chooses it in the run's inspector, which is open."""
    if not shown:
        return
    title = f"Rounds {shown[0].index}–{shown[-1].index} <small>of {numbers.quantity(run.total)}</small>"
    with parts.headline(f"rounds_head_{run.run_id}"):
        st.html(f'<h3 class="sl-h">{title}</h3>', width="content")
        if pages and run.total > WINDOW:
            st.pagination(-(-run.total // WINDOW), key=_page_key(run))
    states = ["plain"] if run.plain else ["accepted", "rejected", "unreached", "correction", "bonus"]
    if any(node.fate == "cut" for r in shown for node in r.nodes):
        states.insert(3, "cut")
    st.html(tokens.legend(states))
    height = TAIL_HEIGHT if run.active or len(shown) > FEW else "content"
    # An active run's keeps to its end by style: Streamlit's autoscroll looks sixty times a second whether it has to.
    kept = st.container(height=height, border=False, key=f"{'tail' if run.active else 'whole'}_{run.run_id}")
    with kept, st.container(key=f"roundlist_{run.run_id}"):
        for block in trees.blocks(shown):
            st.html(trees.rows(block, run.plain, run.run_id if numbered else ""))
