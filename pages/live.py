"""Live: ask for a run or a race, watch the rounds stream, pause, step, stop. form → ``jobs.submit_together`` → draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.errors import SpecLensError
from core.jobs.jobs import PAUSE_LIMIT_S
from core.types import RunSpec
from pages.ui.kit import notices, parts
from pages.ui.kit.runs import Shown, find, valid_id
from pages.ui.kit.services import Services, services
from pages.ui.live import forms, race_form, race_view
from pages.ui.live.form_values import values_of
from pages.ui.rounds import run_view

TICK_S = 0.5
"""How often the page draws while something runs. The run itself does not depend on anyone looking."""

LAST, RIVAL, OPENED = "live_run", "live_rival", "live_opened"
START_PAUSED = "start_paused"

KEPT = f"{PAUSE_LIMIT_S / 60:g} minutes"
PAUSE = "Pause after the round in progress. The device is free for other runs meanwhile."
RESUME = "Decode without further pauses."
STEP = "Decode one round, then pause again (in a race, one round per lane)."
STEP_OFF = "Pause first, or start paused: then each step is one round."
OVER = "Nothing is running."
PAUSED = (
    f"The device is free for other runs. The cache is kept for {KEPT} after the last round or step; after that the run "
    "is cancelled, and its rounds are kept."
)


def page() -> None:
    """The whole page."""
    app = services()
    notices.faults(app)
    before = st.session_state.get(LAST)
    run = chosen(app)
    rival = None if run is None else racing(app, run)
    if run is None:
        forms.fill({})
        race_form.fill(None, None, over=False)
    else:  # another run than the one of a moment ago, by link or reload: its settings are what the form should show
        show(run.run_id, rival.run_id if rival else None)
        forms.fill(values_of(run.spec), over=run.run_id != before)
        race_form.fill(run.spec, rival.spec if rival else None, over=run.run_id != before)
    with st.container(key="live_columns"):
        left, right = st.columns([1, 2.4], gap="medium", wrap=False)
    with left, st.container(key="form"):
        asked = form(app)
    with right:
        watched(app, run, rival, asked)


def chosen(app: Services) -> Shown | None:
    """The run to show: the link's, else the one shown last, else, in a window just opened, the newest active one of
    this app. Later another's run doesn't take the place of what somebody is typing."""
    asked = st.query_params.get("run")
    opened = OPENED not in st.session_state
    st.session_state[OPENED] = True
    for run_id in (valid_id(asked), st.session_state.get(LAST), newest(app) if opened else None):
        run = found(app, run_id) if run_id else None
        if run is not None:
            return run
    if asked is not None:
        st.html(parts.note("warn", parts.UNKNOWN_RUN))
    return None


def newest(app: Services) -> str | None:
    """The active run submitted last; of a race, whose lanes are submitted at one instant, the first lane."""
    active = app.jobs.active()
    return next((view.run_id for view in active if view.submitted_at == active[-1].submitted_at), None)


def racing(app: Services, run: Shown) -> Shown | None:
    """The run that races with ``run``: the link's, else that of a moment ago, else the one submitted with it."""
    asked = st.query_params.get("race")
    if asked is not None:
        rival_id = valid_id(asked)
        rival = found(app, rival_id) if rival_id and rival_id != run.run_id else None
        if rival is None:
            st.html(parts.note("warn", parts.UNKNOWN_RUN, "The second lane is missing."))
        return rival
    if st.query_params.get("run") is not None:
        return None  # a link to one run, or one that was just begun alone
    last = st.session_state.get(RIVAL) if st.session_state.get(LAST) == run.run_id else None
    together = (v.run_id for v in app.jobs.active() if v.submitted_at == run.submitted_at and v.run_id != run.run_id)
    rival_id = last or next(together, None)
    return found(app, rival_id) if rival_id else None


def found(app: Services, run_id: str) -> Shown | None:
    """The run; None, with a note on the page, while the store can't be read."""
    try:
        return find(app, run_id)
    except SpecLensError as error:
        st.html(parts.note("bad", str(error)))
        return None


def show(run_id: str, rival_id: str | None) -> None:
    """Make this the run, or the race, of this page, here and in the address."""
    st.session_state[LAST], st.session_state[RIVAL] = run_id, rival_id
    if st.query_params.get("run") != run_id:
        st.query_params["run"] = run_id
    if rival_id is not None and st.query_params.get("race") != rival_id:
        st.query_params["race"] = rival_id
    elif rival_id is None and "race" in st.query_params:
        del st.query_params["race"]


def form(app: Services) -> list[RunSpec] | str:
    """Draw prompt, Run and settings; return what the form asks for, or the sentence on what is wrong in it."""
    forms.prompt_part(app.pairs())
    actions = st.container(horizontal=True, vertical_alignment="center", key="actions")
    problem = st.empty()
    forms.settings_part()
    asked = forms.read_all()
    with actions:
        start = st.button(
            "Run" if isinstance(asked, str) or len(asked) == 1 else "Race",
            type="primary",
            icon=":material/play_arrow:",
            disabled=isinstance(asked, str),
            shortcut="Ctrl+Enter",
            key="run",
        )
        paused = st.toggle(
            "Start paused",
            help="Pause before the first round; then step or resume.",
            key=START_PAUSED,
            persist_state="session",
        )
    if isinstance(asked, str):
        problem.html(parts.note("bad", asked))
    elif start:
        try:
            begin(app, asked, paused)
        except SpecLensError as error:
            problem.html(parts.note("bad", str(error)))
        else:
            st.rerun()
    return asked


def begin(app: Services, asked: list[RunSpec], paused: bool) -> None:
    """Submit what the form asks for and show it. Raises what ``submit_together`` raises."""
    run_id, *rest = app.jobs.submit_together(asked, paused=paused)
    st.session_state[LAST], st.session_state[RIVAL] = run_id, next(iter(rest), None)
    show(run_id, next(iter(rest), None))


def watched(app: Services, run: Shown | None, rival: Shown | None, asked: list[RunSpec] | str) -> None:
    """What is shown, drawn again and again while any of it is active. ``asked``: what the form asks for now."""
    if run is None:
        controls(app, [])
        st.html(parts.empty("No run yet", "Press Run to decode the prompt and watch which candidates are accepted."))
        return
    ids = [run.run_id] + ([rival.run_id] if rival else [])
    active = run.active or (rival is not None and rival.active)
    changed = asked != [each.spec for each in (run, rival) if each is not None]
    st.fragment(_drawn, run_every=TICK_S if active else None)(ids, active, changed)


def controls(app: Services, runs: Sequence[Shown]) -> None:
    """Pause or Resume, Step and Stop of all runs shown, and what a pause means while one lasts."""
    active = [run.run_id for run in runs if run.active]
    paused = [run.run_id for run in runs if run.active and run.paused]
    going = [run_id for run_id in active if run_id not in paused]
    with st.container(horizontal=True, key="controls"):
        if paused and not going:
            _button("Resume", "play_arrow", RESUME, app.jobs.resume, paused)
        else:
            _button("Pause", "pause", PAUSE if going else OVER, app.jobs.pause, going)
        _button("Step one round", "skip_next", STEP if paused else STEP_OFF, app.jobs.step, paused, key="step")
        _button("Stop", "stop", None, app.jobs.cancel, active)
    if any(run.halted for run in runs) and not going:
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


@notices.told
def _drawn(run_ids: list[str], ticking: bool, changed: bool) -> None:
    app = services()
    runs = [run for run_id in run_ids if (run := found(app, run_id)) is not None]
    if not runs:
        return
    controls(app, runs)
    st.html(parts.shown_line(runs, changed))
    if len(runs) == 2:
        race_view.draw(app, runs[0], runs[1])
    else:
        run_view.draw(app, runs[0])
    if ticking and not any(run.active for run in runs):
        st.rerun(scope="app")  # draws once more, without the ticking


page()
