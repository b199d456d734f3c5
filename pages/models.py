"""Models: the pairs known here, what each needs, whether any other would run. Loads and frees them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import streamlit as st

from core.errors import SpecLensError
from core.jobs.queue import JobView
from core.pairs import memory
from core.pairs.inventory import KnownPair
from core.records import TERMINAL
from core.types import Device, Precision
from pages.ui.kit import notices, parts
from pages.ui.kit.services import Services, services
from pages.ui.models import check_view, pair_facts
from pages.ui.models.scene import Scene, scene

TICK_S, IDLE_S = 0.5, 5.0
"""How often the pairs are drawn, in seconds: while something is loaded or checked, and else."""

KEY = "models_"
FORM, CARD = "form", "card"
PRECISIONS: dict[Precision, str] = {
    "auto": "Automatic",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int8": "int8 (CPU)",
}
DEVICES: dict[Device, str] = {"auto": "Automatic", "cpu": "CPU", "cuda": "GPU"}
MAX_USED = 40
"""Pairs of stored runs that are listed."""


LOAD = "Loads the pair (decodes one token). The pair loaded now is unloaded."
DOWNLOAD = "Fetches what is missing and brings the pair into the engine's memory."
UNLOAD = "Frees the engine's memory, after the run in flight."
CONVERTS = (
    "Its 4-bit file is converted once, when it is first loaded: about half a minute and 540 MB in the cache folder."
)


def page() -> None:
    """Settings and device, the check, the pairs."""
    app = services()
    notices.faults(app)
    with st.container(key="models_top"):
        left, right = st.columns([1.3, 1], gap="medium", vertical_alignment="bottom", wrap=False)
    with left, st.container(horizontal=True, key="models_settings"):
        asked, precision, rows = settings()
    ticking = busy(app)
    with right:
        st.fragment(_panel, run_every=IDLE_S)(asked, precision, rows)
    typed(app)
    st.fragment(_pairs, run_every=TICK_S if ticking else IDLE_S)(asked, precision, rows, ticking)


def settings() -> tuple[Device, Precision, int]:
    """How pairs are loaded, and the length of a slot."""
    asked = st.selectbox(
        "Device",
        list(DEVICES),
        format_func=DEVICES.__getitem__,
        help="Where a pair is loaded. Automatic takes the GPU if there is one.",
        key=KEY + "device",
    )
    precision = st.selectbox(
        "Precision",
        list(PRECISIONS),
        format_func=PRECISIONS.__getitem__,
        help="Of the weights and the cache. Automatic is bfloat16 on a GPU and float32 on the CPU. int8 rounds the "
        "linear layers of both models: another target, with its own baseline; the rest and the cache stay float32.",
        key=KEY + "precision",
    )
    rows = st.number_input(
        "Context length, tokens",
        min_value=1,
        max_value=10_000_000,
        value=4096,
        step=1024,
        help="Prompt and output of one run: the length that the cache is counted for.",
        key=KEY + "rows",
    )
    return asked, precision, int(rows)


def typed(app: Services) -> None:
    """The form that checks any pair."""
    with st.form("models_check", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input(
            "Check a pair",
            placeholder="TARGET or TARGET+DRAFT: hub names or folders",
            help="Reads configuration and tokenizers, never weights; for a hub name that isn't here these few MB "
            "are downloaded if the network allows.",
            max_chars=1000,
            key=KEY + "name",
        )
        asked = st.form_submit_button("Check", icon=":material/rule:")
    if asked and name.strip():
        check(app, FORM, name.strip())
    elif asked:
        st.html(parts.note("warn", "Type the pair to check: TARGET, or TARGET+DRAFT."))


def check(app: Services, place: str, name: str) -> None:
    """Start a check whose answer is shown at ``place``."""
    app.checks.start(name)
    st.session_state[KEY + "shown"] = (place, name)


def busy(app: Services) -> bool:
    """Something is being loaded, or checked for this visitor."""
    load, (_, name) = app.jobs.loading(), shown()
    view = app.checks.view(name) if name else None
    return (load is not None and load.status not in TERMINAL) or (view is not None and view.running)


def shown() -> tuple[str, str]:
    """Where a check is shown and of which pair; empty when there is none."""
    return st.session_state.get(KEY + "shown", ("", ""))


def _panel(asked: Device, precision: Precision, rows: int) -> None:
    now = scene(asked, precision, rows)
    held = ", ".join(f"{pair.name} · {now.in_words(pair)}" for pair in now.loaded) or "nothing"
    st.html(pair_facts.device_panel(now.device, held))


def _pairs(asked: Device, precision: Precision, rows: int, ticking: bool) -> None:
    now = scene(asked, precision, rows)
    app = now.app
    if now.device.problem:
        st.html(parts.note("bad", now.device.problem))
    place, name = shown()
    if place == FORM:
        with st.container(border=True, key="models_answer"):
            answer(now, name, load_button=True)
    known = app.inventory.known(used(now))
    presets, others = [pair for pair in known if pair.preset], [pair for pair in known if not pair.preset]
    for heading, pairs in (("Presets", presets), ("From stored runs and loads", others)):
        if pairs:
            st.html(f'<h3 class="sl-h">{heading} <small>{len(pairs)}</small></h3>')
        for pair in pairs:
            with st.container(border=True, key=f"pair_{pair.name}"):
                card(now, pair)
    if ticking != busy(app):
        app.inventory.forget()
        st.rerun(scope="app")


def used(now: Scene) -> list[str]:
    """Pairs of loads and of stored runs; of loads alone while the store can't be read (History shows why)."""
    found = [pair.name for pair in now.loaded]
    found += [now.load.spec.pair.name] if now.load is not None else []
    if now.app.runs is not None:
        with suppress(SpecLensError):
            found += now.app.runs.facets().pair[:MAX_USED]
    return list(dict.fromkeys(found))


def card(now: Scene, pair: KnownPair) -> None:
    """One pair: what it is, what it needs, and its buttons."""
    left, right = st.columns([6, 1], gap="medium", wrap=False)
    needed, about = now.need_of(pair)
    verdict = memory.fit(needed, now.free)
    load, here = now.load_of(pair.name), now.held(pair.name) == now.spec(pair.name)
    with left:
        _title(now, pair, load)
        facts = pair_facts.models_table(pair.models)
        facts += pair_facts.memory_line(needed, now.device, now.free, verdict, about, loaded=here)
        if facts:
            st.html(facts)
    with right:
        _actions(now, pair, load, verdict)
    if shown() == (CARD, pair.name):
        answer(now, pair.name, load_button=False)


def _title(now: Scene, pair: KnownPair, load: JobView | None) -> None:
    """The pair's name and state; under it the load that is going on, or why the last one failed."""
    held = now.held(pair.name)
    state = "loading" if _going(load) else "loaded" if held else "missing" if pair.missing else "here"
    more = CONVERTS if pair.converts and not pair.missing else pair.missing
    st.html(pair_facts.title(pair, state, now.in_words(held) if held else "", more))
    if load is not None and _going(load):
        st.html(check_view.bar(waiting(load), load.progress))
    elif load is not None and load.status == "failed" and load.ended is not None and load.ended.error:
        st.html(parts.note("bad", load.ended.error, "Not loaded."))


def _actions(now: Scene, pair: KnownPair, load: JobView | None, verdict: memory.Fit) -> None:
    """Stop or Unload; Download or Load; Check."""
    held = now.held(pair.name)
    if load is not None and _going(load):
        _button("Stop", "stop", pair.name, lambda: now.app.jobs.cancel(load.run_id), icon="stop")
    elif held:
        _button("Unload", "unload", pair.name, now.app.jobs.unload, icon="eject", help=UNLOAD)
    if not _going(load) and held != now.spec(pair.name):
        blocked = verdict == "nothing" or bool(now.device.problem) or bool(pair.missing and not pair.fetchable)
        label, icon, why = ("Download", "download", DOWNLOAD) if pair.missing else ("Load", "memory", LOAD)
        why = "It does not fit into the memory that is free." if verdict == "nothing" else why
        _button(label, "load", pair.name, lambda: put(now, pair.name), blocked, icon=icon, help=why)
    _button("Check", "check", pair.name, lambda: check(now.app, CARD, pair.name), icon="rule", kind="tertiary")


def _going(load: JobView | None) -> bool:
    return load is not None and load.status not in TERMINAL


def waiting(load: JobView) -> str:
    """What a load that isn't over is doing."""
    if load.status == "queued":
        return f"Waits for the runs before it ({load.position} in the queue)."
    return load.message or "starting the engine …"


def put(now: Scene, name: str) -> None:
    """Have the engine load the pair."""
    now.app.jobs.load(now.spec(name))


def _button(label: str, verb: str, name: str, act: Callable[[], object], blocked: bool = False, **looks: Any) -> None:
    icon, kind, tip = looks["icon"], looks.get("kind", "secondary"), looks.get("help")
    asked = st.button(
        label,
        icon=f":material/{icon}:",
        type=kind,
        disabled=blocked,
        width="stretch",
        help=tip,
        key=f"{verb}_{name}",
    )
    if asked:
        try:
            act()
        except SpecLensError as error:
            st.html(parts.note("bad", str(error)))
        else:
            st.rerun(scope="app")


def answer(now: Scene, name: str, load_button: bool) -> None:
    """What the check of ``name`` found, or how far it is."""
    view = now.app.checks.view(name)
    if view is None:
        st.html(parts.note("info", f"The check of {name} is forgotten: check it again."))
        return
    if view.running:
        st.html(check_view.progress(view))
        _button("Stop", "stop_check", name, lambda: now.app.checks.stop(name), icon="stop", kind="tertiary")
        return
    finding = view.finding
    if finding is None:
        st.html(parts.note("warn", view.problem, f"{name} was not checked."))
        return
    st.html(check_view.verdict(view, finding) + check_view.points(finding))
    if load_button and not finding.problems:
        found = tuple(model.description for model in finding.models if model.description is not None)
        needed = memory.need(found, now.resolved, now.rows)
        verdict = memory.fit(needed, now.free)
        if needed.weights is not None:
            st.html(pair_facts.memory_line(needed, now.device, now.free, verdict))
        blocked = verdict == "nothing" or bool(now.device.problem)
        with st.container(horizontal=True):
            _button("Load", "load_checked", name, lambda: put(now, name), blocked, icon="memory", help=LOAD)


page()
