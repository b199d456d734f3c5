"""Walking a draft with a rule: accept down one path, then draw the token at its end (article; rules.md §2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from core.decoding.block import block_of, toss
from core.decoding.position import RuledPosition, position_of
from core.drafting.growers import Draft
from core.records import ROOT, Trial, Verdict
from core.rules.token_rule import BlockRule, LosslessRule, TokenRule
from core.sampling.distributions import draw, one_hot
from core.sampling.randomness import Streams

TargetRow = Callable[[int], Tensor]
"""p [V] after a node (ROOT: after the committed prefix). Called only for positions that the walk reaches."""


def walk(
    draft: Draft, target: TargetRow, rule: TokenRule, streams: Streams, untempered: TargetRow | None = None
) -> Verdict:
    """Test candidates from the root down until a position rejects all of its own or has none.

    A position that rejects draws the *correction*; a path that ends accepted draws the *bonus*. One coin per test, one
    redraw per round. ``untempered`` gives the target's untempered row of a greedy request, of which a rule with a law
    r* of its own takes the argmax (rules.md §2 "Greedy"). Block verification reads every row of the chain.
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


def walk_choices(draft: Draft, choice: Callable[[int], int], rule: LosslessRule, streams: Streams) -> Verdict:
    """:func:`walk` of a greedy request: ``choice`` gives the one token of which p is certain after a node, and each
    candidate is certain too.

    The vectors of a ``rule`` that compares a token's p with its q are zero but at these tokens. So the walk is done
    over a vocabulary of the draft's tokens and one that stands for every other, which only a last token can be.
    """
    if not draft.tokens:  # plain decoding, most of all
        streams.redraw()  # the number that draws the certain token: later ones keep their places
        return Verdict((), choice(ROOT), "bonus", ())
    names = list(dict.fromkeys(draft.tokens))
    place = {token: i for i, token in enumerate(names)}
    size = len(names) + 1
    chosen: dict[int, int] = {}

    def target(node: int) -> Tensor:
        chosen[node] = choice(node)
        return one_hot(place.get(chosen[node], size - 1), size)

    tokens = tuple(place[token] for token in draft.tokens)
    q = None if draft.q is None else tuple(one_hot(token, size) for token in tokens)
    verdict = walk(replace(draft, tokens=tokens, q=q), target, rule, streams)
    last = verdict.next_token
    return replace(
        verdict,
        next_token=names[last] if last < len(names) else chosen[verdict.path[-1] if verdict.path else ROOT],
        trials=tuple(replace(trial, token=draft.tokens[trial.node]) for trial in verdict.trials),
    )


def _test(
    draft: Draft,
    candidates: list[int],
    position: RuledPosition,
    streams: Streams,
    trials: list[Trial],
) -> tuple[int, Tensor | None]:
    """Test one position's siblings in order, appending to ``trials``: the accepted node, or what to draw from."""
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
