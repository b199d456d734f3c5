"""The article's first code example: one round with fixed candidates and fixed draws, through the engine's own walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from core.decoding.verify import walk
from core.drafting.draft import Draft
from core.errors import BadInput
from core.lab.emission import Emission, emission
from core.lab.theory import pair
from core.lab.vocabularies import LabPair
from core.records import Fate
from core.rules.table import token_rule
from core.sampling.randomness import Streams
from core.types import Lossless


@dataclass(frozen=True, slots=True)
class Step:
    """One candidate: its draw against its threshold. ``u`` and ``threshold`` are None where it was never tested."""

    token: str
    u: float | None
    threshold: float | None
    fate: Fate


@dataclass(frozen=True, slots=True)
class Replay:
    """``emitted`` ends with the correction or the bonus; ``discarded``: the rejected candidate and all after it.

    ``law``: the rule at every prefix of the round.
    """

    steps: tuple[Step, ...]
    emitted: tuple[str, ...]
    discarded: tuple[str, ...]
    source: str
    law: Emission


def replay(given: LabPair, draft: Sequence[str], draws: Sequence[float], final_draw: float) -> Replay:
    """The round of the article's example, p and q the same at every prefix.

    Raises:
        BadInput: a candidate that is not in the vocabulary or that q never proposes, a number of draws other than that
            of candidates, a draw outside [0, 1).
    """
    p, q = pair(given.p, given.q)
    place = {token: number for number, token in enumerate(given.tokens)}
    if not draft:
        raise BadInput("The draft is empty: name at least one candidate.")
    for token in draft:
        if token not in place:
            raise BadInput(f"{token!r} is not in the vocabulary: candidates are {', '.join(given.tokens)}.")
        if given.q[place[token]] <= 0.0:
            raise BadInput(f"q({token}) is 0, so {token} is never proposed: leave it out of the draft.")
    if len(draws) != len(draft):
        raise BadInput(f"{len(draft)} candidates need {len(draft)} draws, not {len(draws)}.")
    for u in (*draws, final_draw):
        if not isfinite(u) or not 0.0 <= u < 1.0:
            raise BadInput(f"The draw {u} is outside 0 ≤ u < 1.")
    ids = tuple(place[token] for token in draft)
    coins = iter(draws)
    streams = Streams(draft=_never, coin=lambda: next(coins), redraw=lambda: final_draw)
    chain = Draft.drawn(ids, range(-1, len(ids) - 1), (q,) * len(ids))
    verdict = walk(chain, lambda node: p, token_rule(Lossless()), streams)
    tested = {trial.node: trial for trial in verdict.trials}
    steps = tuple(
        Step(
            token,
            tested[node].u if node in tested else None,
            tested[node].accept_prob if node in tested else None,
            "unreached" if node not in tested else "accepted" if tested[node].accepted else "rejected",
        )
        for node, token in enumerate(draft)
    )
    kept = len(verdict.path)
    law = emission("lossless", p, q)
    return Replay(
        steps=steps,
        emitted=(*draft[:kept], given.tokens[verdict.next_token]),
        discarded=tuple(draft[kept:]),
        source=verdict.source,
        law=law,
    )


def _never() -> float:
    raise AssertionError("the candidates of a replay are given, not drawn")
