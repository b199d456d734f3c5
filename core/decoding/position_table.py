"""The stored table of one visited position: its top tokens, the mass of the rest, and its measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from core.decoding.measurement import Measurement
from core.drafting.draft import Draft
from core.records import Position, TopToken

TOP_TOKENS = 20
"""Tokens stored per visited position, by max(p, q)."""


def position_table(
    draft: Draft, node: int, p: Tensor, measured: Measurement | None, piece: Callable[[int], str]
) -> Position:
    """Top tokens by max(p, q) after ``node``. Deterministic candidates have q = 1 each: every one was certain to be
    tried. ``piece`` is a token's text."""
    children = draft.children(node)
    q: Tensor | None = None
    if children and draft.drawing != "deterministic":
        q = draft.proposal(children[0], len(p), p.device)
    elif children:
        q = torch.zeros_like(p)
        q[[draft.tokens[child] for child in children]] = 1.0
    best = torch.topk(p if q is None else torch.maximum(p, q), min(TOP_TOKENS, len(p))).indices
    tokens = best.tolist()
    ps: list[float] = p[best].tolist()
    qs = _values(q, best)
    residuals = _values(measured.residual if measured else None, best)
    laws = _values(measured.law if measured else None, best)
    top = tuple(
        TopToken(token, piece(token), p_, q_, residual, law)
        for token, p_, q_, residual, law in zip(tokens, ps, qs, residuals, laws, strict=True)
    )
    q_rest = None if q is None else max(0.0, float(q.sum()) - sum(one.q or 0.0 for one in top))
    return Position(
        node=node,
        top=top,
        p_rest=max(0.0, 1.0 - sum(ps)),
        q_rest=q_rest,
        distortion=measured.distortion if measured else None,
    )


def choice_table(
    draft: Draft, node: int, choice: int, vocab: int, measured: Measurement | None, piece: Callable[[int], str]
) -> Position:
    """:func:`position_table` of a greedy position, whose p is certain of ``choice`` and whose candidates have q = 1
    each, without forming rows [V] (``vocab``) that are zero but for a few tokens."""
    children = draft.children(node)
    drafted = [draft.tokens[child] for child in (children if draft.drawing == "deterministic" else children[:1])]
    tokens = _certain_first({choice, *drafted}, vocab)
    residuals, laws = (
        [None] * len(tokens) if row is None else row[tokens].tolist()
        for row in ((measured.residual, measured.law) if measured else (None, None))
    )
    top = tuple(
        TopToken(
            token, piece(token), float(token == choice), float(token in drafted) if children else None, residual, law
        )
        for token, residual, law in zip(tokens, residuals, laws, strict=True)
    )
    return Position(
        node=node,
        top=top,
        p_rest=1.0 - sum(one.p for one in top),
        q_rest=len(set(drafted)) - sum(one.q or 0.0 for one in top) if children else None,
        distortion=measured.distortion if measured else None,
    )


def _certain_first(certain: set[int], vocab: int) -> list[int]:
    """The top tokens of a row that is 1 at ``certain`` tokens and 0 elsewhere, as topk orders them over [V].

    Which zeros fill the table up is the sort's own choice, the same whatever the vocabulary's size once the first
    ``TOP_TOKENS`` tokens stand in their places. So the order is that of a narrow row, which is soon known.
    """
    far = sorted(token for token in certain if token >= TOP_TOKENS)
    if vocab <= _NARROW or len(far) > _NARROW - TOP_TOKENS:
        return list(_order(tuple(sorted(certain)), vocab))
    near = (token for token in certain if token < TOP_TOKENS)
    places = (*sorted(near), *range(TOP_TOKENS, TOP_TOKENS + len(far)))
    return [place if place < TOP_TOKENS else far[place - TOP_TOKENS] for place in _order(places, _NARROW)]


_NARROW = 64 * TOP_TOKENS
"""From this width on topk keeps a heap of the best so far, which a zero never enters once it is full."""


@lru_cache(maxsize=1024)
def _order(certain: tuple[int, ...], width: int) -> tuple[int, ...]:
    row = torch.zeros(width)
    row[list(certain)] = 1.0
    return tuple(torch.topk(row, min(TOP_TOKENS, width)).indices.tolist())


def _values(row: Tensor | None, places: Tensor) -> Sequence[float | None]:
    return [None] * len(places) if row is None else row[places].tolist()
