"""The stored table of one visited position: its top tokens, the mass of the rest, and its measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.decoding.distortion import Measurement
from core.drafting.draft import Draft
from core.records import Position, TopToken
from core.sampling.probability import Certain, Distribution

TOP_TOKENS = 20
"""Most tokens stored per visited position, by max(p, q); tokens with p = q = 0 are left out."""


def position_table(
    draft: Draft, node: int, p: Distribution, measured: Measurement | None, piece: Callable[[int], str]
) -> Position:
    """The table after ``node``, where the target's law is ``p``. Deterministic candidates have q = 1 each, as each was
    certain to be proposed. ``piece`` returns a token's text."""
    best = _certain(draft, node, p) if isinstance(p, Certain) else _largest(draft, node, p.probabilities)
    residuals = _values(measured.residual if measured else None, best.tokens)
    laws = _values(measured.law if measured else None, best.tokens)
    top = tuple(
        TopToken(token, piece(token), p_, q_, residual, law)
        for token, p_, q_, residual, law in zip(best.tokens, best.p, best.q, residuals, laws, strict=True)
    )
    return Position(
        node=node,
        top=top,
        p_rest=max(0.0, 1.0 - sum(best.p)),
        q_rest=None if best.q_mass is None else max(0.0, best.q_mass - sum(one.q or 0.0 for one in top)),
        distortion=measured.distortion if measured else None,
    )


@dataclass(frozen=True, slots=True)
class _Best:
    """``tokens`` of a table with their p and q; ``q_mass``: sum of q over all tokens, None without candidates."""

    tokens: list[int]
    p: list[float]
    q: Sequence[float | None]
    q_mass: float | None


def _certain(draft: Draft, node: int, p: Certain) -> _Best:
    """Tokens in greedy decoding, where p and every q are certain of one token; no row [V] is formed."""
    children = draft.children(node)
    drafted = [draft.tokens[child] for child in (children if draft.drawing == "deterministic" else children[:1])]
    tokens = list(dict.fromkeys([p.token, *drafted]))[:TOP_TOKENS]
    q: list[float | None] = [float(token in drafted) if children else None for token in tokens]
    return _Best(tokens, [p.of(token) for token in tokens], q, float(len(set(drafted))) if children else None)


def _largest(draft: Draft, node: int, p: Tensor) -> _Best:
    """Tokens with the largest max(p, q), from the rows p and q [V]."""
    children = draft.children(node)
    q: Tensor | None = None
    if children and draft.drawing != "deterministic":
        q = draft.proposal(children[0], len(p), p.device)
    elif children:
        q = torch.zeros_like(p)
        q[[draft.tokens[child] for child in children]] = 1.0
    largest, places = torch.topk(p if q is None else torch.maximum(p, q), min(TOP_TOKENS, len(p)))
    places = places[largest > 0.0]
    tokens = places.tolist()
    return _Best(tokens, p[places].tolist(), _values(q, tokens), None if q is None else float(q.sum()))


def _values(row: Tensor | None, tokens: list[int]) -> Sequence[float | None]:
    return [None] * len(tokens) if row is None else row[tokens].tolist()
