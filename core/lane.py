"""One request being decoded: its tokens, random streams, stops, and the records of its rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.distributions import Distributions
from core.drafters.base import Want
from core.errors import EngineFault
from core.randomness import Streams
from core.records import Fate, Node, Position, Round, TopToken, Trial, Verdict
from core.rules import TokenRule, token_rule
from core.stops import StopWatch
from core.timing import Laps
from core.trees import Draft, logits_fault
from core.types import Request
from core.verify import walk

if TYPE_CHECKING:
    from core.models import Pair
    from core.text import TextCodec

NEAR_THRESHOLD = 1e-5
"""A coin this close to its threshold is flagged: float noise could have decided otherwise (design.md "Randomness")."""

TOP_TOKENS = 20
"""Tokens stored per visited position, by max(p, q)."""


@dataclass(slots=True, eq=False)
class Lane:
    """State of one request; ``slot`` is its place in the batch and in the caches."""

    request: Request
    slot: int
    prompt: list[int]
    draft_context: int
    text: TextCodec
    distributions: Distributions
    rule: TokenRule
    streams: Streams
    watch: StopWatch
    sequence: list[int]
    """Prompt and output; the last token is the root of the next round."""
    prefill_s: float = 0.0
    rounds: int = 0
    _held: list[tuple[int, Round]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        request: Request,
        slot: int,
        prompt: list[int],
        pair: Pair,
        streams: Streams,
    ) -> Lane:
        """A lane before its first round."""
        context_room = pair.target.context - len(prompt)
        limited = request.stops.max_new_tokens <= context_room
        watch = StopWatch(
            stream=pair.text.stream(),
            eos=pair.text.eos,
            stop_strings=request.stops.stop_strings,
            room=min(request.stops.max_new_tokens, context_room),
            room_reason="max_new_tokens" if limited else "context_end",
        )
        return cls(
            request=request,
            slot=slot,
            prompt=prompt,
            draft_context=pair.draft.context if pair.draft else pair.target.context,
            text=pair.text,
            distributions=Distributions.of(request.sampling, pair.text.eos, len(prompt), pair.device),
            rule=token_rule(request.rule),
            streams=streams,
            watch=watch,
            sequence=list(prompt),
        )

    def want(self) -> Want:
        """What this lane asks of the drafter: the draft shrinks towards a limit, so that none of it is wasted."""
        depth = min(
            self.watch.room - len(self.watch.tokens) - 1,
            self.draft_context - len(self.sequence),
        )
        shape = self.request.shape
        return Want(
            self.slot,
            self.sequence,
            shape,
            max(0, depth),
            self.distributions,
            self.streams.draft,
        )

    def verify(self, draft: Draft, logits: Tensor) -> tuple[Verdict, dict[int, Tensor]]:
        """Walk ``draft`` over raw target logits [1 + n, V]; also the p rows of the positions that were visited.

        Raises :class:`EngineFault` on a NaN or infinite row, naming round and node.
        """
        visited: dict[int, Tensor] = {}

        def target(node: int) -> Tensor:
            if fault := draft.fault or logits_fault(logits[node + 1], "target", node):
                raise EngineFault(f"round {self.rounds}: {fault}.")
            prefix = self.sequence + [draft.tokens[i] for i in draft.path(node)]
            visited[node] = self.distributions.target(logits[node + 1], prefix)
            return visited[node]

        return walk(draft, target, self.rule, self.streams), visited

    def commit(self, draft: Draft, verdict: Verdict, visited: dict[int, Tensor]) -> Round:
        """Take the verdict's tokens up to a stop; the round's record, its times still zero."""
        start = len(self.watch.tokens)
        committed = [*(draft.tokens[node] for node in verdict.path), verdict.next_token]
        for token in committed:
            self.watch.add(token)
            if self.watch.reason:
                break
        self.sequence += committed
        record = Round(
            request=self.slot,
            index=self.rounds,
            nodes=self._nodes(draft, verdict),
            committed=tuple(committed),
            committed_text=(),
            source=verdict.source,
            positions=tuple(self._position(draft, node, p) for node, p in visited.items()),
            draft_s=0.0,
            verify_s=0.0,
            state_s=0.0,
            other_s=0.0,
            wall_s=0.0,
            ended_at_s=0.0,
        )
        self.rounds += 1
        self._held.append((start, record))
        return record

    def timed(self, laps: Laps) -> None:
        """Write the round's times into its record."""
        start, record = self._held[-1]
        seconds = {f"{stage}_s": value for stage, value in laps.seconds.items()}
        self._held[-1] = (
            start,
            replace(record, **seconds, wall_s=laps.wall, ended_at_s=laps.last),
        )

    def released(self) -> Iterator[Round]:
        """Rounds whose tokens can't be cut any more, cut to what stays."""
        safe = len(self.watch.tokens) if self.watch.reason else self.watch.undecided_from()
        while self._held and (self.watch.reason or self._held[0][0] + len(self._held[0][1].committed) <= safe):
            yield self._cut(*self._held.pop(0))

    def release_all(self) -> Iterator[Round]:
        """Every round so far: the run ends here, so nothing will be cut."""
        while self._held:
            yield self._cut(*self._held.pop(0))

    def _cut(self, start: int, record: Round) -> Round:
        """``record`` without what a stop cut: its committed tokens begin at output position ``start``."""
        kept = max(0, min(len(record.committed), len(self.watch.tokens) - start))
        texts = tuple(self.watch.pieces[start : start + kept])
        if kept == len(record.committed):
            return replace(record, committed_text=texts)
        path = [i for i, node in enumerate(record.nodes) if node.fate == "accepted"]
        cut = set(path[kept:])
        nodes = tuple(replace(node, fate="cut") if i in cut else node for i, node in enumerate(record.nodes))
        return replace(
            record,
            nodes=nodes,
            committed=record.committed[:kept],
            committed_text=texts,
            source="none",
        )

    def _nodes(self, draft: Draft, verdict: Verdict) -> tuple[Node, ...]:
        trials = {trial.node: trial for trial in verdict.trials}
        path = set(verdict.path)
        return tuple(
            self._node(
                draft,
                node,
                trials.get(node),
                "accepted" if node in path else "rejected" if node in trials else "unreached",
            )
            for node in range(len(draft.tokens))
        )

    def _node(self, draft: Draft, node: int, trial: Trial | None, fate: Fate) -> Node:
        token = draft.tokens[node]
        drawn = 1.0 if draft.q is None else float(draft.q[node][token])
        return Node(
            token=token,
            text=self.text.piece(token),
            parent=draft.parents[node],
            depth=draft.depth(node),
            fate=fate,
            p=trial.p if trial else None,
            q=trial.q if trial else drawn,
            score=draft.score[node],
            accept_prob=trial.accept_prob if trial else None,
            u=trial.u if trial else None,
            near_threshold=trial is not None and abs(trial.u - trial.accept_prob) < NEAR_THRESHOLD,
            redraw_fallback=trial is not None and trial.redraw_fallback,
        )

    def _position(self, draft: Draft, node: int, p: Tensor) -> Position:
        """Top tokens by max(p, q). Deterministic candidates have q = 1 each: every one was certain to be tried."""
        children = draft.children(node)
        q: Tensor | None = None
        if children and draft.q is not None:
            q = draft.q[children[0]]
        elif children:
            q = torch.zeros_like(p)
            q[[draft.tokens[child] for child in children]] = 1.0
        ranking = p if q is None else torch.maximum(p, q)
        best = torch.topk(ranking, min(TOP_TOKENS, len(p))).indices
        ps = p[best].tolist()
        qs: Sequence[float | None] = [None] * len(ps) if q is None else q[best].tolist()
        top = tuple(
            TopToken(token, self.text.piece(token), p_, q_) for token, p_, q_ in zip(best.tolist(), ps, qs, strict=True)
        )
        q_rest = None if q is None else max(0.0, float(q.sum()) - sum(value or 0.0 for value in qs))
        return Position(node=node, top=top, p_rest=max(0.0, 1.0 - sum(ps)), q_rest=q_rest)
