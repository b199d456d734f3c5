"""One request being decoded: its tokens, random streams, stops, and the records of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.decoding.measurement import Measurement, measure
from core.decoding.position_table import choice_table, position_table
from core.decoding.stops import StopWatch
from core.decoding.target_rows import Peaks, Rows
from core.decoding.timing import Laps
from core.decoding.verify import TargetRow, walk, walk_choices
from core.drafting.base import Want
from core.drafting.growers import Draft
from core.records import ROOT, Fate, Node, Position, Round, Trial, Verdict
from core.rules.table import token_rule
from core.rules.token_rule import LosslessRule, TokenRule
from core.sampling.distributions import Distributions
from core.sampling.randomness import Streams
from core.types import Request, Sampling, TargetLawSpec

if TYPE_CHECKING:
    from core.models.load import Pair
    from core.models.text import TextCodec

NEAR_THRESHOLD = 1e-5
"""A coin this close to its threshold is flagged: float noise could have decided otherwise (design.md "Randomness")."""


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
            distributions=replace(
                Distributions.of(request.sampling, pair.text.eos, len(prompt), pair.device),
                keeps_growth=request.sampling.greedy and isinstance(request.rule, TargetLawSpec),
            ),
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

    def verify(
        self, draft: Draft, logits: Tensor, peaks: Peaks, root: Tensor | None, last: Callable[[], Tensor]
    ) -> tuple[Verdict, Rows]:
        """Walk ``draft`` over raw target logits [1 + n, V] with their ``peaks``; also the rows of the positions that
        were visited. ``root``: p [V] after the root where it is known (:func:`root_laws`); ``last``: computes the last
        row [1, V] where it was left out.

        Raises :class:`EngineFault` on a NaN or infinite row, naming round and node.
        """
        rows = Rows(draft, logits, peaks, self.distributions, self.sequence, self.rounds, last, root)
        if self.distributions.greedy and isinstance(self.rule, LosslessRule):
            return walk_choices(draft, rows.choice, self.rule, self.streams), rows
        return walk(draft, rows.target, self.rule, self.streams, self._untempered(rows)), rows

    def measure(self, draft: Draft, verdict: Verdict, rows: Rows) -> dict[int, Measurement]:
        """What the rule emits at each tested position; nothing where the request doesn't want to know."""
        if not self.request.measure_distortion:
            return {}
        laws = {node: rows.law(node) for node in rows.visited}
        return measure(draft, verdict, laws, self.rule, self._untempered(rows))

    def _untempered(self, rows: Rows) -> TargetRow | None:
        return rows.untempered if self.distributions.greedy else None

    def commit(self, draft: Draft, verdict: Verdict, rows: Rows, measured: dict[int, Measurement]) -> Round:
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
            positions=tuple(self._table(draft, node, rows, measured.get(node)) for node in rows.visited),
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
        path = {ROOT, *verdict.path}

        def fate(node: int) -> Fate:
            if node in path:
                return "accepted"
            # a block tests its whole chain, but only the candidate after the accepted ones is its rejection
            return "rejected" if node in trials and draft.parents[node] in path else "unreached"

        return tuple(self._node(draft, node, trials.get(node), fate(node)) for node in range(len(draft.tokens)))

    def _table(self, draft: Draft, node: int, rows: Rows, measured: Measurement | None) -> Position:
        p = rows.visited[node]
        if isinstance(p, int):
            return choice_table(draft, node, p, rows.logits.shape[-1], measured, self.text.piece)
        return position_table(draft, node, p, measured, self.text.piece)

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


def root_laws(lanes: Sequence[Lane], logits: Sequence[Tensor], highest: Sequence[Peaks]) -> dict[Lane, Tensor]:
    """p [V] after the root of each lane that shares its sampling with another, formed together: every walk reads it.

    Greedy lanes need no p, penalties look at each lane's own tokens, and a broken row is its own lane's fault alone.
    """
    alike: dict[Sampling, list[tuple[Lane, Tensor]]] = {}
    for lane, rows, peak in zip(lanes, logits, highest, strict=True):
        if not peak.broken(0) and not lane.distributions.greedy and not lane.distributions.penalties:
            alike.setdefault(lane.request.sampling, []).append((lane, rows[0]))
    laws: dict[Lane, Tensor] = {}
    for group in alike.values():
        if len(group) > 1:
            together = group[0][0].distributions.targets(torch.stack([row for _, row in group]))
            laws.update(zip((lane for lane, _ in group), together, strict=True))
    return laws
