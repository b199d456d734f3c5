"""Pause, Resume, Step and Stop of what is shown: one run, or both lanes of a race at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.jobs.jobs import PAUSE_LIMIT_S
from pages.ui.kit import parts
from pages.ui.kit.runs import Shown
from pages.ui.kit.services import Services

KEPT = f"{PAUSE_LIMIT_S / 60:g} minutes"
PAUSE = "Let it stand after the round in progress. The device is free for other runs meanwhile."
RESUME = "Go on, round after round."
STEP = "Decode one more round and stand again; in a race, one in each lane."
STEP_OFF = "Pause first, or start paused: then each step is one round."
OVER = "Nothing is going on that could be paused."
PAUSED = (
    f"The device is free for other runs. The cache is kept for {KEPT} after the last round or step; then the run ends "
    "as cancelled, with the rounds that it has. Step makes one round, Resume goes on."
)


def bar(app: Services, lanes: Sequence[Shown]) -> None:
    """The buttons, and what being paused means while it is."""
    active = [run.run_id for run in lanes if run.active]
    standing = [run.run_id for run in lanes if run.active and run.paused]
    going = [run_id for run_id in active if run_id not in standing]
    with st.container(horizontal=True, key="controls"):
        if standing and not going:
            _button("Resume", "play_arrow", RESUME, app.jobs.resume, standing)
        else:
            _button("Pause", "pause", PAUSE if going else OVER, app.jobs.pause, going)
        _button("Step one round", "skip_next", STEP if standing else STEP_OFF, app.jobs.step, standing, key="step")
        _button("Stop", "stop", None, app.jobs.cancel, active)
    if any(run.standing for run in lanes) and not going:
        st.html(parts.note("info", PAUSED, "Paused."))


def _button(
    label: str, icon: str, help: str | None, act: Callable[[str], bool], run_ids: Sequence[str], key: str = ""
) -> None:
    st.button(
        label,
        icon=f":material/{icon}:",
        help=help,
        disabled=not run_ids,
        on_click=_each,
        args=(act, tuple(run_ids)),
        key=key or label.lower(),
    )


def _each(act: Callable[[str], bool], run_ids: Sequence[str]) -> None:
    for run_id in run_ids:  # one that has ended meanwhile is left alone
        act(run_id)
