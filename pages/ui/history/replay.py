"""Replay: a stored run round by round, drawn by the same functions as a run while it decodes. No model is needed."""

from __future__ import annotations

import time

import streamlit as st

from pages.ui.history import tape
from pages.ui.history.tape import Tape
from pages.ui.kit import notices, numbers, parts
from pages.ui.kit.runs import Shown, find, rounds
from pages.ui.kit.services import Services, services
from pages.ui.rounds import run_view, trees

TICK_S = 0.25
"""Seconds between redraws while a replay plays."""

RECORDED = {"×¼": 0.25, "×1": 1.0, "×4": 4.0}
"""Speeds relative to recorded time."""

ROUNDS = {"1/s": 1.0, "5/s": 5.0, "20/s": 20.0, "100/s": 100.0}
"""Speeds in rounds per second."""

SPEEDS = {
    **{name: f"Recorded time {name}" for name in RECORDED},
    **{name: f"{rate:g} round{'' if rate == 1 else 's'} a second" for name, rate in ROUNDS.items()},
}

SPEED = "replay_speed"


def draw(run: Shown) -> None:
    """Draw the controls, and the run as it was at the chosen round."""
    playing = _playing_since(run.run_id) is not None
    st.fragment(_playing, run_every=TICK_S if playing else None)(run.run_id, playing)


@notices.told
def _playing(run_id: str, ticking: bool) -> None:
    app = services()
    run = find(app, run_id)
    if run is None:
        return
    with st.spinner("Reading the rounds …"):
        reel = tape.of_run(app, run)
    if not len(reel):
        st.html(parts.empty("Nothing to replay", "None of this run's rounds were kept."))
        return
    _advance(run_id, reel)
    if ticking and _playing_since(run_id) is None:
        st.rerun(scope="app")  # draws once more, without the ticking
    _controls(run_id, reel)
    _scene(app, run, reel, _place(run_id))


def _scene(app: Services, run: Shown, reel: Tape, count: int) -> None:
    """Draw the run as it looked after ``count`` rounds."""
    then = reel.shown(run, count, moving=_playing_since(run.run_id) is not None)
    st.html(_line(run, reel, count))
    start = max(0, count - run_view.TEXT_ROUNDS)
    if start:
        st.caption("Text of the latest rounds.")
    run_view.text_part(then, reel.rounds[start:count])
    if then.summary is not None:
        st.html(parts.cards(then, then.summary, None))
    first = max(0, count - run_view.WINDOW)
    first -= first % trees.BLOCK
    run_view.rounds_part(then, rounds(app, run, first, count - first))
    if count == len(reel):
        if run.error:
            st.html(parts.note("bad", run.error, f"Here the run was {run.status}."))
        elif run.summary is not None:
            reason = run.summary.stop_reason.replace("_", " ")
            st.html(parts.note("info", f"The end: stop, {reason}."))


def _line(run: Shown, reel: Tape, count: int) -> str:
    """The replay's position in rounds, tokens and recorded time."""
    tokens = sum(len(one.committed) for one in reel.rounds[:count])
    whole = run.summary.output_tokens if run.summary else tokens
    bits = (
        f"{numbers.quantity(count)} of {numbers.quantity(len(reel))} rounds",
        f"{numbers.quantity(tokens)} of {numbers.quantity(whole)} tokens",
        f"{numbers.seconds(reel.time_s(count))} of {numbers.seconds(reel.time_s(len(reel)))} recorded",
    )
    return f'<div class="sl-status" data-replay="{count}">{"".join(f"<span>{bit}</span>" for bit in bits)}</div>'


# -- where it is and how it moves -------------------------------------------------------------------------------------


def _controls(run_id: str, reel: Tape) -> None:
    place, last = _place(run_id), len(reel)
    playing = _playing_since(run_id) is not None
    with st.container(horizontal=True, vertical_alignment="bottom", key="replay_controls"):
        _button("First", "skip_previous", "replay_first", place == 0, run_id, 0)
        _button("Previous", "chevron_left", "replay_previous", place == 0, run_id, max(0, place - 1))
        if playing:
            if st.button("Pause", icon=":material/pause:", type="primary", key="replay_pause"):
                _pause(run_id)
                st.rerun(scope="app")
        elif st.button("Play", icon=":material/play_arrow:", type="primary", key="replay_play"):
            _play(run_id, reel)
            st.rerun(scope="app")
        _button("Next", "chevron_right", "replay_next", place == last, run_id, min(last, place + 1))
        _button("End", "skip_next", "replay_end", place == last, run_id, last)
        st.selectbox(
            "Speed",
            list(SPEEDS),
            index=1,
            format_func=SPEEDS.__getitem__,
            label_visibility="collapsed",
            width=230,
            key=SPEED,
            on_change=_restart,
            args=(run_id, reel),
            persist_state="session",
        )
    st.slider(
        "Rounds so far",
        0,
        last,
        key=_key(run_id),
        on_change=_pause,
        args=(run_id,),
        help="Arrow keys move by one round.",
    )


def _button(label: str, icon: str, key: str, disabled: bool, run_id: str, place: int) -> None:
    st.button(
        label,
        icon=f":material/{icon}:",
        disabled=disabled,
        on_click=_go,
        args=(run_id, place),
        key=key,
    )


def _key(run_id: str) -> str:
    return f"replay_at_{run_id}"


def _since_key(run_id: str) -> str:
    return f"replay_since_{run_id}"


def _place(run_id: str) -> int:
    return int(st.session_state.get(_key(run_id), 0))


def _playing_since(run_id: str) -> tuple[float, int] | None:
    """Start of playing (seconds of the monotonic clock) and the round at that time; None unless playing."""
    return st.session_state.get(_since_key(run_id))


def _go(run_id: str, place: int) -> None:
    _pause(run_id)
    st.session_state[_key(run_id)] = place


def _play(run_id: str, reel: Tape) -> None:
    place = _place(run_id)
    st.session_state[_since_key(run_id)] = (time.monotonic(), 0 if place >= len(reel) else place)


def _pause(run_id: str) -> None:
    st.session_state.pop(_since_key(run_id), None)


def _restart(run_id: str, reel: Tape) -> None:
    """Continue from the current round at another speed."""
    if _playing_since(run_id):
        _play(run_id, reel)


def _advance(run_id: str, reel: Tape) -> None:
    """Move to the round that the clock has reached; playing ends at the last round. A slow page skips rounds."""
    playing = _playing_since(run_id)
    place = min(_place(run_id), len(reel))
    if playing is not None:
        since, begun_at = playing
        place = reached(reel, begun_at, time.monotonic() - since, st.session_state.get(SPEED, "×1"))
        if place == len(reel):
            _pause(run_id)
    st.session_state[_key(run_id)] = place


def reached(reel: Tape, begun_at: int, for_s: float, speed: str) -> int:
    """Number of rounds that are over after playing for ``for_s`` seconds from round ``begun_at``."""
    if speed in ROUNDS:
        return min(len(reel), begun_at + int(for_s * ROUNDS[speed]))
    return max(begun_at, reel.at(reel.time_s(begun_at) + for_s * RECORDED[speed]))
