"""The round inspector: one round's drafted tree, a position's distributions and coins, the stage times.

Everything is drawn from the round's record, so running, ended, stored and replayed runs look alike and no model is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from core.records import ROOT, Round
from pages.ui.kit import lab_link, numbers, palette, parts
from pages.ui.kit.glyphs import chip_text
from pages.ui.kit.runs import Shown
from pages.ui.rounds import position, tokens, tree_drawing
from pages.ui.rounds.tree_drawing import END

UNTESTED = "No test was made after this candidate's parent: the walk had ended before. Only the draft is known of it."
NOT_KEPT = "The distributions of this position were not kept."


def section(run: Shown, shown: Sequence[Round]) -> bool:
    """Draw the inspector for the rounds in view; return whether it is open. During a run it is closed until a person
    opens it; then it follows the latest round."""
    if not shown:
        return False
    moving = run.active and not run.paused
    box = st.expander(
        "Round inspector",
        expanded=not moving,
        icon=":material/frame_inspect:",
        on_change="rerun",
        key=f"inspector_{'moving' if moving else 'still'}_{run.run_id}",
    )
    if not box.open:
        return False
    with box, st.container(key=f"inspector_{run.run_id}"):
        chosen = _choose(run, shown)
        _round(run, chosen)
    return True


def _choose(run: Shown, shown: Sequence[Round]) -> Round:
    """The inspected round: the chosen round, else an active run's latest or another run's first in view."""
    low, high = shown[0].index, shown[-1].index
    key, follow = f"round_{run.run_id}", f"follow_{run.run_id}"
    st.session_state.setdefault(follow, run.active)
    asked = st.session_state.get(key)
    if st.session_state[follow] and run.active:
        asked = high + 1
    index = low if asked is None else min(high, max(low, int(asked) - 1))
    st.session_state[key] = index + 1
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"inspected_{run.run_id}"):
        st.number_input(
            "Round",
            min_value=1,
            step=1,
            width=130,
            help=f"Rounds {low + 1}–{high + 1} are in view. A round's number in the list chooses it as well.",
            key=key,
            on_change=_hold,
            args=(run.run_id,),
        )
        if run.active:
            st.toggle("Follow the latest", help="Show each new round as it comes.", key=follow)
        st.html(_facts(next(r for r in shown if r.index == index)))
    return next(r for r in shown if r.index == index)


def _hold(run_id: str) -> None:
    st.session_state[f"follow_{run_id}"] = False


def _facts(round_: Round) -> str:
    """The round's numbers and stage times, as HTML."""
    counts = " ".join(
        f"<span>{palette.STATES[fate].mark} {round_.count(fate)} {palette.STATES[fate].label}</span>"
        for fate in ("accepted", "rejected", "unreached", "cut")
        if round_.count(fate)
    )
    source = "" if round_.source == "none" or not round_.nodes else palette.STATES[round_.source]
    end = f"<span>{source.mark} {source.label}</span>" if source else ""
    stages = "".join(
        f'<i style="flex-grow:{1e6 * getattr(round_, name):.0f};background:{look.colour}" title="{look.label}"></i>'
        for name, look in palette.STAGES.items()
    )
    names = "".join(
        f'<span title="{escape(look.meaning, quote=True)}"><i style="background:{look.colour}"></i>{look.label} '
        f"{numbers.seconds(getattr(round_, name))}</span>"
        for name, look in palette.STAGES.items()
    )
    return (
        f'<div class="sl-facts"><div class="sl-status">{counts or "<span>no draft</span>"}{end}'
        f'<span>{numbers.seconds(round_.wall_s)}</span></div><div class="sl-stages" aria-hidden="true">{stages}</div>'
        f'<div class="sl-stagenames">{names}</div></div>'
    )


def _round(run: Shown, round_: Round) -> None:
    """Draw the round's tree, then the position chosen in it."""
    key = f"tree_{run.run_id}"
    chosen = _mark(run, round_)
    tree_drawing.draw(round_, chosen, run.run_id, key, lambda: _picked(run.run_id, key, round_.index))
    _position(run, round_, chosen)


def _picked(run_id: str, key: str, index: int) -> None:
    """Store the choice of a mark in the tree or of a round's number."""
    picked = st.session_state.get(key) or {}
    round_, mark = picked.get("round"), picked.get("pick")
    if isinstance(round_, int):
        st.session_state[f"round_{run_id}"] = round_ + 1
        _hold(run_id)
    elif isinstance(mark, int):
        st.session_state[f"round_{run_id}"] = index + 1
        st.session_state[f"mark_{run_id}"] = (index, mark)
        _hold(run_id)


def _mark(run: Shown, round_: Round) -> int:
    """The mark chosen in this round, by default its last token, whose position shows the rejection and the redraw."""
    index, mark = st.session_state.get(f"mark_{run.run_id}", (None, END))
    if index == round_.index and (mark in (ROOT, END) or 0 <= mark < len(round_.nodes)):
        return mark
    return END if round_.source != "none" else tokens.path_end(round_)


def _position(run: Shown, round_: Round, mark: int) -> None:
    """Draw the position at which the chosen mark was tested or drawn."""
    candidate = round_.nodes[mark] if mark >= 0 else None
    end = tokens.path_end(round_)
    at = candidate.parent if candidate else end if mark == END else ROOT
    where = (
        "after the committed prefix" if at == ROOT else f"after candidate {at + 1} {chip_text(round_.nodes[at].text)}"
    )
    text = f" <small>{where}, depth {1 if at == ROOT else round_.nodes[at].depth + 1}</small>"
    st.html(f'<h4 class="sl-h">Position{text}</h4>')
    found = next((each for each in round_.positions if each.node == at), None)
    if found is None:
        st.html(parts.note("info", UNTESTED if candidate and candidate.u is None else NOT_KEPT))
        if candidate:
            st.html(f'<p class="sl-reason">{escape(tokens.tip(candidate))}</p>')
        return
    coins = position.tested(round_, at)
    if coins:
        st.html(position.coins(round_, coins, mark))
    if candidate and candidate.u is None:
        st.html(parts.note("info", "This candidate was never tested: a sibling was accepted before it."))
    state = tokens.origin(round_) if at == end and round_.source != "none" else None
    st.html(position.table(round_, found, state, candidate.token if candidate else None))
    if found.distortion is not None:
        st.html(position.distortion(found.distortion))
    if coins and not run.active:
        st.page_link(
            "pages/rules.py",
            label="This position in the Rule lab",
            icon=":material/experiment:",
            query_params=lab_link.query(lab_link.Stored(run.run_id, round_.index, at)),
        )
