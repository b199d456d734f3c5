"""Walking a draft with a rule: accept down one path, then draw the token at its end (article; rules.md §2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from core.distributions import draw
from core.randomness import Streams
from core.records import ROOT, Trial, Verdict
from core.rules import TokenRule, without
from core.siblings import siblings
from core.trees import Draft

TargetRow = Callable[[int], Tensor]
"""p [V] after a node (ROOT: after the committed prefix). Called only for positions that the walk reaches."""


def walk(draft: Draft, target: TargetRow, rule: TokenRule, streams: Streams) -> Verdict:
    """Test candidates from the root down until a position rejects all of its own or has none.

    A position that rejects draws the *correction*; a path that ends accepted draws the *bonus*. One coin per test, one
    redraw per round.
    """
    at = ROOT
    path: list[int] = []
    trials: list[Trial] = []
    while candidates := draft.children(at):
        accepted, rejected_from = _test(draft, candidates, target(at), rule, streams, trials)
        if rejected_from is not None:
            return Verdict(
                tuple(path),
                draw(rejected_from, streams.redraw()),
                "correction",
                tuple(trials),
            )
        path.append(accepted)
        at = accepted
    return Verdict(
        tuple(path),
        draw(rule.bonus(target(at)), streams.redraw()),
        "bonus",
        tuple(trials),
    )


def _test(
    draft: Draft,
    candidates: list[int],
    p: Tensor,
    rule: TokenRule,
    streams: Streams,
    trials: list[Trial],
) -> tuple[int, Tensor | None]:
    """Test one position's siblings in order, appending to ``trials``: the accepted node, or what to draw from."""
    q = draft.proposal(candidates[0], len(p), p.device)
    position = siblings(rule, p, q, alone=len(candidates) == 1 and draft.drawing != "deterministic")
    for node in candidates:
        if draft.drawing == "deterministic":
            q = draft.proposal(node, len(p), p.device)
        token = draft.tokens[node]
        accept_prob = float(position.accepts(q)[token])
        u = streams.coin()
        trial = Trial(
            node,
            token,
            float(position.p[token]),
            float(q[token]),
            accept_prob,
            u,
            u < accept_prob,
        )
        trials.append(trial)
        if trial.accepted:
            return node, None
        position.reject(token, q)
        if draft.drawing == "without_replacement":
            q = without(q, token)
    trials[-1] = replace(trials[-1], redraw_fallback=position.falls_back(q))
    return ROOT, position.redraw(q)
