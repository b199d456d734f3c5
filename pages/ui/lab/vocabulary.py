"""The rule lab's p and q: a preset, a stored position, or what is typed into the table. Kept in the link.

``session_state`` holds what the table began with (its *source*), as the parameters of a link; edits live in the
table's own widget, and the link follows what is shown.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.errors import BadInput, SpecLensError
from core.lab.vocabularies import PRESETS, LabPair, distinct, lab_pair, of_position, of_preset
from core.records import ROOT, Position, Round
from pages.ui.kit import lab_link, notices, numbers, parts
from pages.ui.kit.lab_link import Stored
from pages.ui.kit.runs import find, rounds
from pages.ui.kit.services import Services
from pages.ui.lab import compute
from pages.ui.lab.tables import Cell, Head, Line, probability, table, token
from storage.filters import RunFilter

SOURCE, VERSION, WRITTEN = "lab_source", "lab_version", "lab_written"
FROM = "lab_from"
STORED, OWN = "stored", "own"
MAX_RUNS = 50
ROW, MAX_HEIGHT = 35, 353
"""Pixels of the table: a row, and all of it before it scrolls."""
ARTICLE = {"preset": "article"}
ANY_STORED = {"run": ""}
"""A stored position that is still to be chosen."""
LINKED = ("preset", "p", "q", "run", "round", "at")

Source = str | LabPair | Stored


def draw(app: Services) -> LabPair | None:
    """The panel; the pair as edited and normalised, or None, with a sentence, when there is none yet."""
    _follow_link()
    with st.container(key="lab_input"):
        left, right = st.columns([1, 1.15], gap="medium")
    with left:
        st.selectbox(
            "Start from",
            [*PRESETS, STORED, *([OWN] if isinstance(_source(), LabPair) else [])],
            format_func=_label,
            key=FROM,
            on_change=_chosen,
        )
        try:
            begun = _begun(app)
            shown = None if begun is None else _edited(begun)
        except SpecLensError as error:
            st.html(parts.note("bad", str(error)))
            return None
    if begun is None or shown is None:
        return None
    _write_link(shown, begun)
    with right:
        _facts(shown)
    return shown


def _source() -> Source:
    link: dict[str, str] = st.session_state.get(SOURCE, ARTICLE)
    if link == ANY_STORED:
        return Stored("", 0, ROOT)
    return lab_link.read(link) or "article"


def _begin(link: dict[str, str]) -> None:
    """Begin anew from ``link``: the table forgets its edits."""
    st.session_state[SOURCE] = link
    st.session_state[VERSION] = st.session_state.get(VERSION, 0) + 1
    source = _source()
    st.session_state[FROM] = source if isinstance(source, str) else STORED if isinstance(source, Stored) else OWN


def _chosen() -> None:
    asked = st.session_state[FROM]
    if asked in PRESETS:
        _begin({"preset": asked})
    elif asked == STORED:
        _begin(ANY_STORED)


def _follow_link() -> None:
    """Begin with what the address names, once; afterwards the address follows the page."""
    asked = {name: st.query_params[name] for name in LINKED if name in st.query_params}
    if asked and asked != st.session_state.get(WRITTEN):
        try:
            found = lab_link.read(asked)
        except BadInput as error:
            st.html(parts.note("warn", f"{error} The article's tokens are shown instead."))
            found = None
        _begin(ARTICLE if found is None else asked)
        st.session_state[WRITTEN] = asked
    elif FROM not in st.session_state:
        _begin(st.session_state.get(SOURCE, ARTICLE))


def _write_link(shown: LabPair, begun: LabPair) -> None:
    source = _source()
    wanted = lab_link.query(source if shown == begun else shown)
    if wanted != st.session_state.get(WRITTEN) or any(name not in st.query_params for name in wanted):
        for name in LINKED:
            if name not in wanted and name in st.query_params:
                del st.query_params[name]
        st.query_params.update(wanted)
        st.session_state[WRITTEN] = wanted


def _label(name: str) -> str:
    if name == STORED:
        return "A stored position"
    return PRESETS[name].label if name in PRESETS else "Own values"


def _begun(app: Services) -> LabPair | None:
    match _source():
        case str(name):
            st.caption(PRESETS[name].about)
            return of_preset(name)
        case Stored() as asked:
            return _stored(app, asked)
        case LabPair() as pair:
            return pair


def _edited(begun: LabPair) -> LabPair:
    """The table. Raises BadInput for values that are no distribution."""
    back: Any = st.data_editor(
        {"token": [token(text) for text in begun.tokens], "p": list(begun.raw_p), "q": list(begun.raw_q)},
        column_config={
            "token": st.column_config.TextColumn("Token", max_chars=24, required=True, width="small"),
            "p": st.column_config.NumberColumn("p, target", format="%.4f", help="As given; scaled to sum to 1."),
            "q": st.column_config.NumberColumn("q, draft", format="%.4f", help="As given; scaled to sum to 1."),
        },
        num_rows="dynamic",
        hide_index=True,
        height=min(ROW * (begun.size + 2) + 3, MAX_HEIGHT),
        key=f"lab_table_{st.session_state.get(VERSION, 0)}",
        alt="The vocabulary with the target's and the draft's probability of each token",
    )
    columns = {name: [_value(value) for value in back[name]] for name in ("token", "p", "q")}
    given = [token(text) for text in begun.tokens]
    if columns["token"] == given and columns["p"] == list(begun.raw_p) and columns["q"] == list(begun.raw_q):
        return begun
    whole = dict(zip(enumerate(given), begun.tokens, strict=True))  # what a line still shows shortened
    names = [whole.get((place, name), name or f"#{place + 1}") for place, name in enumerate(columns["token"])]
    return lab_pair(
        distinct(names), [_number(value) for value in columns["p"]], [_number(value) for value in columns["q"]]
    )


def _value(value: Any) -> Any:
    return value if isinstance(value, str) else None if value is None or value != value else value


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _facts(pair: LabPair) -> None:
    """Normalised p and q with their overlap."""
    found = compute.facts(pair)
    kl = numbers.NOTHING if found.kl is None else f"{found.kl:.4f}"
    cards = (
        ("Lossless acceptance", f"{found.acceptance:.4f}", "Σ min(p, q): how often a draw from q is accepted."),
        ("TV(p, q)", f"{found.tv:.4f}", "½ Σ |p − q| = 1 − Σ min(p, q)."),
        ("KL(q‖p), nats", kl, f"{numbers.rate(found.escaped)} of q lies where p is 0." if found.kl is None else
         "Divergence of the draft from the target."),
        ("Entropy p / q, nats", f"{found.entropy_p:.2f} / {found.entropy_q:.2f}", "How undecided each is."),
    )  # fmt: skip
    st.html(parts.value_cards(cards))
    lines = [
        Line(Cell(token(text), tip=text), (probability(p), probability(q), probability(both)))
        for text, p, q, both in zip(pair.tokens, pair.p, pair.q, found.overlap, strict=True)
    ]
    heads = (
        Head("Token", number=False),
        Head("p", "The target's probability, normalised."),
        Head("q", "The draft's probability, normalised."),
        Head("min(p, q)", "What a lossless test accepts of the token."),
    )
    st.html(f'<div class="sl-short">{table(heads, lines, "Normalised p and q")}</div>')
    if pair.scaled:
        st.caption(
            " and ".join(f"{name} as given sums to {total:.4g}" for name, total in pair.scaled) + ": scaled to 1."
        )
    if pair.has_rest:
        st.caption(
            "“rest” stands for every token that is not listed. Rules look at each token by itself, so a threshold may "
            "treat the rest differently from its parts."
        )


# -- a stored position ----------------------------------------------------------------------------------------------


def _stored(app: Services, asked: Stored) -> LabPair | None:
    """Choice of run, round and position; the pair there, or None with a sentence."""
    if app.runs is None:
        notices.faults(app)
        return None
    recent = [run for run in app.runs.list(RunFilter(), limit=MAX_RUNS) if run.drafter != "none"]
    labels = {run.run_id: f"{numbers.moment(run.submitted_at)} · {run.drafter} {run.shape}" for run in recent}
    if asked.run_id and asked.run_id not in labels:
        labels[asked.run_id] = f"{asked.run_id[:8]}…"
    if not labels:
        st.html(
            parts.empty("No drafting run yet", "Run a prompt with a drafter on Live, then choose a position of it.")
        )
        return None
    ids = list(labels)
    run_id = st.selectbox(
        "Run", ids, index=ids.index(asked.run_id) if asked.run_id else 0, format_func=labels.__getitem__,
        key=f"lab_run_{st.session_state[VERSION]}",
    )  # fmt: skip
    run = find(app, run_id)
    if run is None or not run.total:
        st.html(parts.note("warn", parts.UNKNOWN_RUN if run is None else "It has no whole round yet."))
        return None
    with st.container(horizontal=True):
        number = int(
            st.number_input(
                "Round", 1, run.total, value=min(max(asked.round, 0) + 1, run.total), step=1, width=120,
                key=f"lab_round_{st.session_state[VERSION]}_{run_id}",
            )
        ) - 1  # fmt: skip
        found = rounds(app, run, number, 1)
        places = _places(found[0]) if found else {}
        if not places:
            st.html(parts.note("info", "Nothing was drafted in this round, so it has no q: choose another."))
            return None
        order = list(places)
        at = st.selectbox(
            "Position", order, index=order.index(asked.at) if asked.at in places else 0,
            format_func=lambda node: _where(found[0], node),
            key=f"lab_at_{st.session_state[VERSION]}_{run_id}_{number}",
        )  # fmt: skip
    if (run_id, number, at) != (asked.run_id, asked.round, asked.at):
        st.session_state[SOURCE] = lab_link.query(Stored(run_id, number, at))
    return of_position(places[at])


def _places(found: Round) -> dict[int, Position]:
    return {place.node: place for place in found.positions if place.q_rest is not None}


def _where(found: Round, node: int) -> str:
    if node == ROOT:
        return "first of the round"
    return f"after candidate {node + 1} {token(found.nodes[node].text)}"
