"""Actions on stored runs: name, tag and annotate them, archive and restore them, delete them for good.

They apply to one run or many. Every change is one call of the store; if it is refused, the reason is shown where the
change was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from core.errors import SpecLensError
from core.records import TERMINAL
from pages.ui.history.tables import line
from pages.ui.kit import numbers, parts
from pages.ui.kit.glyphs import plain_glyphs
from pages.ui.kit.services import Services, services
from storage.labels import MAX_TAG, MAX_TAGS, Labels, clean_name, clean_note, clean_tags
from storage.queries import StoredRun

if TYPE_CHECKING:
    from storage.store import Store

NAMED = 8
"""Most runs that the question before a deletion lists by name; the others are counted."""

NAME_LENGTH = 80
DELETED = "history_deleted"
"""Session state: number of runs just deleted, to be announced once."""


def buttons(app: Services, labels: Mapping[str, Labels], key: str) -> None:
    """Draw the actions for these runs in the current container. ``key``: unique to the place on the page."""
    ids = list(labels)
    if app.keeper is None or not ids:
        return
    if len(ids) == 1:
        if st.button("Edit", icon=":material/edit:", key=f"edit_{key}", help="Name, tags and note."):
            edit(ids[0])
    elif st.button("Tags", icon=":material/sell:", key=f"tags_{key}", help="Add tags and take them away."):
        retag(ids)
    if any(not one.archived for one in labels.values()):
        tip = "Out of the usual list; nothing is lost."
        if st.button("Archive", icon=":material/archive:", key=f"archive_{key}", help=tip):
            _archive(app.keeper, ids, True)
    tip = "Back into the usual list."
    shelved = any(one.archived for one in labels.values())
    if shelved and st.button("Restore", icon=":material/unarchive:", key=f"restore_{key}", help=tip):
        _archive(app.keeper, ids, False)
    if st.button("Delete", icon=":material/delete:", key=f"delete_{key}", help="For good, after a question."):
        delete(ids)


@st.dialog("Name, tags and note", icon=":material/edit:")
def edit(run_id: str) -> None:
    """Dialog to edit one run's labels."""
    app = services()
    now = _labels(app, [run_id]).get(run_id)
    if now is None or app.runs is None:
        st.html(parts.note("warn", "This run was deleted meanwhile."))
        return
    name = st.text_input("Name", now.name or "", placeholder="None", key=f"name_{run_id}")
    tags = _tag_field("Tags", now.tags, sorted({*app.runs.facets().tag, *now.tags}), f"runtags_{run_id}")
    note = st.text_area("Note", now.note or "", height=140, key=f"note_{run_id}")

    def save(keeper: Store) -> None:
        # all or nothing: a refusal comes before anything is written
        clean_name(name)
        clean_note(note)
        clean_tags(tags)
        keeper.tag([run_id], add=[tag for tag in tags if tag not in now.tags],
                   remove=[tag for tag in now.tags if tag not in tags])  # fmt: skip
        if name != (now.name or ""):
            keeper.rename(run_id, name)
        if note != (now.note or ""):
            keeper.annotate(run_id, note)

    _decide("Save", save)


@st.dialog("Tags", icon=":material/sell:")
def retag(run_ids: Sequence[str]) -> None:
    """Dialog to edit the tags of several runs."""
    app = services()
    if app.runs is None:
        return
    had = sorted({tag for one in _labels(app, run_ids).values() for tag in one.tags})
    st.html(f'<p class="sl-reason">Of {_count(len(run_ids))}.</p>')
    add = _tag_field("Add", (), list(app.runs.facets().tag), "tags_add")
    away = st.multiselect("Take away", had, format_func=_shown, placeholder="None", key="tags_remove") if had else []

    def save(keeper: Store) -> None:
        if not add and not away:
            return
        keeper.tag(run_ids, add=add, remove=away)

    _decide("Save", save)


@st.dialog("Delete for good?", icon=":material/delete:")
def delete(run_ids: Sequence[str]) -> None:
    """Dialog with the question before a deletion."""
    app = services()
    found = _labels(app, run_ids)
    if app.runs is None or not found:
        st.html(parts.note("warn", "They were deleted meanwhile." if len(run_ids) > 1 else "It was deleted meanwhile."))
        return
    live = [run_id for run_id, one in found.items() if one.status not in TERMINAL]
    named = [run for run_id in list(found)[:NAMED] if (run := app.runs.get(run_id)) is not None]
    more = len(found) - len(named)
    st.html(
        f'<p class="sl-reason"><b data-delete="{len(found)}">{_count(len(found))}</b> with all rounds and candidates:'
        "</p>"
        f'<ul class="sl-doomed">{"".join(map(_item, named))}'
        + (f"<li>and {numbers.quantity(more)} more</li>" if more else "")
        + "</ul>"
    )
    if live:
        which = "It is" if len(found) == 1 else f"{len(live)} of them {'is' if len(live) == 1 else 'are'}"
        st.html(parts.note("bad", f"{which} still {found[live[0]].status}: stop what runs before deleting it."))
    else:
        st.html(parts.note("warn", "This cannot be undone. To keep the numbers, export them first."))

    def gone(keeper: Store) -> None:
        with st.spinner(f"Deleting {_count(len(found))} …"):
            count = keeper.delete(list(found))
        app.gone.update(found)
        st.session_state[DELETED] = count

    _decide("Delete for good", gone, disabled=bool(live))


def announce_deletion() -> None:
    """Announce a deletion that has just happened."""
    count = st.session_state.pop(DELETED, None)
    if count is not None:
        st.toast(f"{_count(count)} deleted.", icon=":material/delete:")


def head(labels: Labels | None, run_id: str, moment: str) -> str:
    """Heading of an opened run: its name, or its time."""
    name = line(labels.name, NAME_LENGTH) if labels and labels.name else ""
    when = f"Run of {moment}"
    title = f"{escape(name or when)} <small>{escape(f'{when} · ' if name else '')}{escape(run_id)}</small>"
    return f'<h3 class="sl-h" data-name="{escape(name, quote=True)}">{title}</h3>'


def written(labels: Labels) -> str:
    """Tags, archive mark and note as HTML; empty without any of these."""
    marks = ['<span class="sl-tag sl-shelf">archived</span>'] if labels.archived else []
    marks += [f'<span class="sl-tag">{escape(_shown(tag), quote=True)}</span>' for tag in labels.tags]
    line_ = f'<div class="sl-tags" aria-label="Tags">{"".join(marks)}</div>' if marks else ""
    if not labels.note:
        return line_
    return line_ + f'<div class="sl-written" role="note" aria-label="Note">{_lines(labels.note)}</div>'


def _lines(text: str) -> str:
    """A note as escaped HTML: line breaks stay, invisible characters are made visible."""
    return "\n".join(escape(plain_glyphs(each).replace("␣", " "), quote=True) for each in text.split("\n"))


def _item(run: StoredRun) -> str:
    name = line(run.name, NAME_LENGTH) if run.name else line(run.spec.request.prompt, NAME_LENGTH)
    return f"<li><b>{escape(name)}</b> · {escape(numbers.moment(run.submitted_at))} · {escape(run.status)}</li>"


def _tag_field(label: str, now: Sequence[str], known: Sequence[str], key: str) -> list[str]:
    return st.multiselect(
        label,
        list(known),
        default=list(now),
        format_func=_shown,
        accept_new_options=True,
        placeholder="Choose, or type a new one",
        help=f"At most {MAX_TAGS} a run, of {MAX_TAG} characters each.",
        key=key,
    )


def _decide(label: str, do: Callable[[Store], None], disabled: bool = False) -> None:
    """Draw the button that calls ``do`` and the button that cancels; the reason for a refusal is shown above them."""
    keeper = services().keeper
    refused = st.empty()
    with st.container(horizontal=True, horizontal_alignment="right", key="decide"):
        if st.button("Cancel", key="decide_no"):
            st.rerun()
        asked = st.button(label, type="primary", disabled=disabled or keeper is None, key="decide_yes")
    if not asked or keeper is None:
        return
    try:
        do(keeper)
    except SpecLensError as error:
        refused.html(parts.note("bad", str(error)))
    else:
        st.rerun()


def _archive(keeper: Store, run_ids: Sequence[str], archived: bool) -> None:
    count = keeper.archive(run_ids, archived)
    st.toast(f"{_count(count)} {'archived' if archived else 'restored'}.", icon=":material/archive:")
    st.rerun()


def _labels(app: Services, run_ids: Sequence[str]) -> dict[str, Labels]:
    return app.runs.labels(run_ids) if app.runs is not None else {}


def _count(count: int) -> str:
    return f"{numbers.quantity(count)} run" + ("" if count == 1 else "s")


def _shown(text: str) -> str:
    return plain_glyphs(text).replace("␣", " ")
