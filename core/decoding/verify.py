"""Walking a draft with a rule: accept down one path, then draw the token at its end (article; rules.md §2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from core.decoding.block import block_of, toss
from core.decoding.siblings import RuledPosition, position_of
from core.decoding.target_rows import TargetRows
from core.drafting.draft import Draft
from core.records import ROOT, Trial, Verdict
from core.rules.token_rule import BlockRule, LosslessRule, TokenRule
from core.sampling.probability import Certain, Distribution, draw, one_hot
from core.sampling.randomness import Streams

TargetRow = Callable[[int], Tensor]
"""p [V] after a node (ROOT: after the committed prefix). Called only for positions that the walk reaches."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Verified ``draft``: the target's ``rows`` that the walk read, and the ``verdict``."""

    draft: Draft
    rows: TargetRows
    verdict: Verdict


def verify(draft: Draft, rows: TargetRows, rule: TokenRule, streams: Streams) -> Verified:
    """Walk ``draft`` over the target's ``rows`` (:func:`walk`); if p and every q are certain, without rows [V].

    Raises :class:`EngineFault` on a NaN or infinite row and on a row without mass, naming round and node.
    """
    if rows.greedy and isinstance(rule, LosslessRule):
        verdict = walk_certain(draft, rows.law, rule, streams)
    else:
        verdict = walk(draft, rows.vector, rule, streams, rows.untempered if rows.greedy else None)
    return Verified(draft, rows, verdict)


def walk(
    draft: Draft, target: TargetRow, rule: TokenRule, streams: Streams, untempered: TargetRow | None = None
) -> Verdict:
    """Test candidates from the root down until a position rejects all of its own or has none.

    After a position that rejects all, the *correction* is drawn; after a wholly accepted path, the *bonus*. One coin
    per test, one redraw per round. For greedy requests, ``untempered`` returns the target's untempered row, from which
    a rule with a law r* of its own forms r* and takes its argmax (rules.md §2 "Greedy"). Block verification reads every
    row of the chain.
    """
    if isinstance(rule, BlockRule) and draft.tokens:
        return _walk_block(draft, target, rule, streams)
    at = ROOT
    path: list[int] = []
    trials: list[Trial] = []
    while candidates := draft.children(at):
        position = position_of(draft, at, target(at), rule, untempered)
        accepted, rejected_from = _test(draft, candidates, position, streams, trials)
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


def walk_certain(draft: Draft, target: Callable[[int], Distribution], rule: LosslessRule, streams: Streams) -> Verdict:
    """Walk as :func:`walk` does where ``target`` and all candidates are certain, without forming rows [V].

    Only the draft's tokens and the target's choices can have probability. So the walk runs over a small vocabulary: the
    draft's tokens, and one id for all other tokens, which no candidate has.
    """
    if not draft.tokens:  # plain decoding: nothing to test
        streams.redraw()  # draw for the certain token too, so that later draws don't depend on this shortcut
        return Verdict((), _chosen(target(ROOT)), "bonus", ())
    names = list(dict.fromkeys(draft.tokens))
    place = {token: i for i, token in enumerate(names)}
    size = len(names) + 1

    def row(node: int) -> Tensor:
        return one_hot(place.get(_chosen(target(node)), size - 1), size)

    tokens = tuple(place[token] for token in draft.tokens)
    verdict = walk(replace(draft, tokens=tokens, q=tuple(map(Certain, tokens))), row, rule, streams)
    last = verdict.next_token
    return replace(
        verdict,
        next_token=names[last] if last < len(names) else _chosen(target(verdict.path[-1] if verdict.path else ROOT)),
        trials=tuple(replace(trial, token=draft.tokens[trial.node]) for trial in verdict.trials),
    )


def _chosen(law: Distribution) -> int:
    assert isinstance(law, Certain)
    return law.token


def _test(
    draft: Draft,
    candidates: list[int],
    position: RuledPosition,
    streams: Streams,
    trials: list[Trial],
) -> tuple[int, Tensor | None]:
    """Test one position's siblings in order, appending to ``trials``; return the accepted node, or ROOT and the
    distribution [V] to draw from."""
    siblings, q = position.siblings(), position.q
    for node in candidates:
        q = draft.offered(node, q)
        token = draft.tokens[node]
        accept_prob = float(siblings.accepts(q)[token])
        u = streams.coin()
        trial = Trial(
            node,
            token,
            float(siblings.p[token]),
            float(q[token]),
            accept_prob,
            u,
            u < accept_prob,
        )
        trials.append(trial)
        if trial.accepted:
            return node, None
        siblings.reject(token, q)
        q = draft.left_of(q, node)
    trials[-1] = replace(trials[-1], redraw_fallback=siblings.falls_back(q))
    return ROOT, siblings.redraw(q)


def _walk_block(draft: Draft, target: TargetRow, rule: TokenRule, streams: Streams) -> Verdict:
    block = block_of(draft, target)
    length, trials = toss(block, draft, streams.coin)
    whole = length == len(draft.tokens)
    law = rule.bonus(target(length - 1)) if whole else block.residual(length)
    return Verdict(tuple(range(length)), draw(law, streams.redraw()), "bonus" if whole else "correction", trials)
