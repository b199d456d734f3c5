"""One request being decoded: its tokens, random streams, stops, and the records of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.cache.target import Candidates
from core.decoding.distortion import Measurement, measure
from core.decoding.position_table import position_table
from core.decoding.stops import StopWatch
from core.decoding.timing import Laps
from core.decoding.verify import Verified
from core.drafting.base import DraftRequest
from core.drafting.draft import Draft
from core.records import ROOT, Fate, Node, Round, Trial, Verdict
from core.rules.table import token_rule
from core.rules.token_rule import TokenRule
from core.sampling.distributions import Distributions
from core.sampling.randomness import Streams
from core.types import Request, TargetLawSpec

if TYPE_CHECKING:
    from core.models.pair import Pair
    from core.models.text import TextCodec

NEAR_THRESHOLD = 1e-5
"""Distance within which a coin is flagged: rounding could have decided otherwise (design.md "Randomness")."""


@dataclass(slots=True, eq=False)
class RequestState:
    """State of one request while it is decoded; ``slot`` is its index in the batch and in the caches."""

    request: Request
    slot: int
    prompt: list[int]
    draft_context: int
    """Positions that the drafter can read: the draft model's if it drafts, else the target's."""
    rereads_at: int | None
    """Position at which a root makes the target read the whole sequence anew, which no candidate may pass."""
    text: TextCodec
    distributions: Distributions
    rule: TokenRule
    streams: Streams
    watch: StopWatch
    sequence: list[int]
    """Prompt and output; the last token is the root of the next round."""
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
    ) -> RequestState:
        """The state before the first round."""
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
            draft_context=pair.draft.context if pair.draft and request.drafter.kind == "model" else pair.target.context,
            rereads_at=pair.target.rereads_at,
            text=pair.text,
            distributions=replace(
                Distributions.of(request.sampling, pair.text.eos, len(prompt), pair.device),
                keeps_growth=request.sampling.greedy and isinstance(request.rule, TargetLawSpec),
            ),
            rule=token_rule(request.rule),
            streams=streams,
            watch=watch,
            sequence=list(prompt),
        )

    @property
    def rereads(self) -> bool:
        """Whether the target's rows of this request must be computed anew before the next round."""
        return self.rereads_at is not None and len(self.prompt) <= self.rereads_at == len(self.sequence) - 1

    def draft_request(self) -> DraftRequest:
        """The request for candidates; near a limit the draft is shorter, so that no candidate is wasted."""
        depth = min(
            self.watch.room - len(self.watch.tokens) - 1,
            self.draft_context - len(self.sequence),
        )
        if self.rereads_at is not None and len(self.sequence) <= self.rereads_at:
            depth = min(depth, self.rereads_at - len(self.sequence))
        return DraftRequest(
            self.slot,
            self.sequence,
            self.request.shape,
            max(0, depth),
            self.distributions,
            self.streams.draft,
        )

    def candidates(self, draft: Draft) -> Candidates:
        """This request's part of a verification pass."""
        return Candidates(self.slot, self.sequence[-1], draft.tokens, draft.parents)

    def measure(self, walk: Verified) -> dict[int, Measurement]:
        """Measure what the rule emits at each tested position; empty if the request has measurement off."""
        if not self.request.measure_distortion:
            return {}
        laws = {node: walk.rows.vector(node) for node in walk.rows.visited}
        return measure(walk.draft, walk.verdict, laws, self.rule, walk.rows.untempered if walk.rows.greedy else None)

    def commit(self, walk: Verified, measured: dict[int, Measurement]) -> Round:
        """Commit the verdict's tokens up to a stop; return the round's record, with its times still zero."""
        draft, verdict = walk.draft, walk.verdict
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
            positions=tuple(
                position_table(draft, node, p, measured.get(node), self.text.piece)
                for node, p in walk.rows.visited.items()
            ),
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
        measuring = laps.measuring if self.request.measure_distortion else None
        self._held[-1] = (
            start,
            replace(record, **seconds, wall_s=laps.wall, ended_at_s=laps.last, distortion_s=measuring),
        )

    def released(self) -> Iterator[Round]:
        """Yield the rounds that no later stop can cut, without the tokens that a stop has cut already."""
        safe = len(self.watch.tokens) if self.watch.reason else self.watch.undecided_from()
        while self._held and (self.watch.reason or self._held[0][0] + len(self._held[0][1].committed) <= safe):
            yield self._cut(*self._held.pop(0))

    def release_all(self) -> Iterator[Round]:
        """Yield every round so far: the run ends here, so no more will be cut."""
        while self._held:
            yield self._cut(*self._held.pop(0))

    def _cut(self, start: int, record: Round) -> Round:
        """``record`` without what a stop cut; its committed tokens begin at output position ``start``."""
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
        path = {ROOT, *verdict.path}

        def fate(node: int) -> Fate:
            if node in path:
                return "accepted"
            # a block tests its whole chain, but only the candidate after the accepted ones is its rejection
            return "rejected" if node in trials and draft.parents[node] in path else "unreached"

        return tuple(self._node(draft, node, trials.get(node), fate(node)) for node in range(len(draft.tokens)))

    def _node(self, draft: Draft, node: int, trial: Trial | None, fate: Fate) -> Node:
        token = draft.tokens[node]
        return Node(
            token=token,
            text=self.text.piece(token),
            parent=draft.parents[node],
            depth=draft.depth(node),
            fate=fate,
            p=trial.p if trial else None,
            q=trial.q if trial else draft.q[node].of(token),
            score=draft.score[node],
            accept_prob=trial.accept_prob if trial else None,
            u=trial.u if trial else None,
            near_threshold=trial is not None and abs(trial.u - trial.accept_prob) < NEAR_THRESHOLD,
            redraw_fallback=trial is not None and trial.redraw_fallback,
        )
