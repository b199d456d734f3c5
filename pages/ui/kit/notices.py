"""Sentences shown on several pages: what "lossless" guarantees and what it does not (article), the effect of a
lossy rule or an untrained exit, and what is wrong with the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from core.errors import SpecLensError
from pages.ui.kit import parts
from pages.ui.kit.services import Services

SAME_SEED = (
    "The same seed does not mean the same text. Two algorithms with one law consume their random numbers in different "
    "orders, so sampled texts part although their distribution is the same."
)
PRECISION = (
    "Lossless holds for exact numbers. Floating-point precision, batch size and how stable log-probabilities are can "
    "still turn single tokens, greedy decoding included, where two candidates lie close together."
)
OTHER_TARGET = (
    "A quantised target, another precision or an approximate cache is another target, not a faster copy of this one: "
    "measure it against its own plain decoding."
)
EARLY_EXIT = (
    "An exit that was not trained shows the mechanism, not a speed-up: the first layers seldom agree with the "
    "whole model. LayerSkip-trained models are made for it."
)
LOSSY = "Lossy: the output no longer follows the target's distribution."
NOT_KEPT = "Runs are not being kept."
LEADS = {SAME_SEED: "Same seed.", PRECISION: "Precision.", OTHER_TARGET: "Another target."}


def show(*notices: str) -> None:
    """Draw the notices as notes of the page."""
    for text in notices:
        st.html(parts.note("info", text, LEADS.get(text, "")))


def folded() -> None:
    """Draw all notices, folded behind one line, for pages on which nothing has been compared yet."""
    with st.expander("What lossless does and doesn't guarantee"):
        show(SAME_SEED, PRECISION, OTHER_TARGET)


def faults(app: Services) -> None:
    """A note while runs are not being kept, with the reason."""
    if why := app.trouble():
        st.html(parts.note("bad", why, NOT_KEPT))


P = ParamSpec("P")


def told(draw: Callable[P, None]) -> Callable[P, None]:
    """``draw`` for a fragment, with an error for the user as a note: what a fragment raises is shown as a crash, since
    the page around it can't catch it."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except SpecLensError as error:
            st.html(parts.note("bad", str(error)))

    return drawn
