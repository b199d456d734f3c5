"""The stored table of one visited position: its top tokens, the mass of the rest, and its measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from core.measurement import Measurement
from core.records import Position, TopToken
from core.trees import Draft

TOP_TOKENS = 20
"""Tokens stored per visited position, by max(p, q)."""


def position_table(
    draft: Draft, node: int, p: Tensor, measured: Measurement | None, piece: Callable[[int], str]
) -> Position:
    """Top tokens by max(p, q) after ``node``. Deterministic candidates have q = 1 each: every one was certain to be
    tried. ``piece`` is a token's text."""
    children = draft.children(node)
    q: Tensor | None = None
    if children and draft.q is not None:
        q = draft.q[children[0]]
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


def _values(row: Tensor | None, places: Tensor) -> Sequence[float | None]:
    return [None] * len(places) if row is None else row[places].tolist()
