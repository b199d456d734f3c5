"""Growers: each expands one draft of the requested shape from a drafter's logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from core.drafting.draft import Draft
from core.faults import fault_after, is_broken, logits_fault
from core.records import ROOT
from core.sampling.distributions import Distributions
from core.sampling.prefix import Prefix
from core.sampling.probability import drawn
from core.sampling.randomness import Stream
from core.types import ChainShape, NoShape, ShapeSpec, TreeShape


class Grower(Protocol):
    """Step-by-step construction of one slot's draft: the drafter scores ``frontier()``, then calls ``grow``.

    Nodes are numbered in order of creation; before the first step the frontier is ROOT.
    """

    def frontier(self) -> list[int]:
        """Nodes whose next-token logits :meth:`grow` needs; empty when the draft is complete."""
        ...

    def grow(self, logits: Sequence[Tensor]) -> None:
        """Add nodes, given the draft logits [V] of each frontier node, in order."""
        ...

    def ids(self, nodes: Sequence[int]) -> Sequence[int] | Tensor:
        """Token ids [n] of created ``nodes``, on the host or on the device, wherever they were created."""
        ...

    @property
    def parents(self) -> list[int]:
        """Parents of all nodes created so far."""
        ...

    def finish(self) -> tuple[Draft, list[int]]:
        """The draft, and for each of its nodes the number under which it was created."""
        ...


class ChainGrower:
    """``chain:γ``: each candidate sampled from q given all earlier ones (greedy at temperature 0).

    Growing reads nothing back from the device: a drawn token stays there as the next step's input, coins come from the
    host, and :meth:`finish` reads tokens, scores and faults at once. So broken logits end the chain only in
    :meth:`finish`; until then they count as a row of zeros, since the run fails anyway.
    """

    def __init__(
        self,
        depth: int,
        distributions: Distributions,
        prefix: Sequence[int],
        stream: Stream,
    ) -> None:
        self.depth = depth
        self.distributions = distributions
        self.stream = stream
        self.prefix = Prefix(prefix)
        self.q: list[Tensor] = []
        self.growth: list[Tensor] = []
        self.broken: list[Tensor] = []

    @property
    def parents(self) -> list[int]:
        """i − 1 for node i, which is ROOT for the first."""
        return [node - 1 for node in range(len(self.q))]

    def ids(self, nodes: Sequence[int]) -> Tensor:
        """Token ids [n] of ``nodes``, on the device."""
        return torch.stack([self.prefix.drawn[node] for node in nodes])

    def frontier(self) -> list[int]:
        """The last node (ROOT at first), until γ candidates are drawn."""
        return [len(self.q) - 1] if len(self.q) < self.depth else []

    def grow(self, logits: Sequence[Tensor]) -> None:
        """Draw the next candidate."""
        broken = is_broken(logits[0])
        row = logits[0].masked_fill(broken, 0.0)
        q = self.distributions.draft(row, self.prefix)
        if self.distributions.keeps_growth:
            self.growth.append(self.distributions.growth(row, self.prefix))
        self.broken.append(broken)
        self.q.append(q)
        self.prefix.append(drawn(q, self.stream()))

    def finish(self) -> tuple[Draft, list[int]]:
        """The chain up to any broken logits, with each candidate's q. The host reads from the device here, once."""
        tokens, score, broken = self._read()
        length = broken.index(True) if True in broken else len(tokens)
        draft = Draft.drawn(
            tokens[:length],
            self.parents[:length],
            self.q[:length],
            score[:length],
            fault=fault_after("draft", length - 1) if True in broken else None,
            growth=self.growth[:length] if self.distributions.keeps_growth else None,
        )
        return draft, list(range(length))

    def _read(self) -> tuple[list[int], list[float], list[bool]]:
        """Token, probability and fault of each candidate; float64 holds all three exactly."""
        if not self.q:
            return [], [], []
        drawn = self.prefix.drawn
        score = [q.gather(0, token[None])[0] for q, token in zip(self.q, drawn, strict=True)]
        columns = [torch.stack(column).double() for column in (drawn, score, self.broken)]
        tokens, scores, broken = torch.stack(columns).tolist()
        return [int(token) for token in tokens], scores, [bool(flag) for flag in broken]


class BeamGrower:
    """``s{steps}_k{topk}_d{nodes}``: deterministic; each step expands the topk best beams.

    Of all candidates, the ``nodes − 1`` with the best cumulative score are kept. A node never scores above its parent
    and ties go to the shallower (older) node, so the kept set is closed under parents.

    The host chooses the beams from the topk of every frontier row, so each step waits for the device.
    """

    def __init__(
        self,
        shape: TreeShape,
        depth: int,
        distributions: Distributions,
        prefix: Sequence[int],
    ) -> None:
        self.shape = shape
        self.depth = min(shape.steps, depth)
        self.distributions = distributions
        self.prefix = list(prefix)
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.score: list[float] = []
        self.cumulative: list[float] = []
        self.growth: list[Tensor] = []
        self.fault: str | None = None
        self._beams = [ROOT] if self.depth else []
        self._step = 0

    def ids(self, nodes: Sequence[int]) -> list[int]:
        """Token ids [n] of ``nodes``, on the host."""
        return [self.tokens[node] for node in nodes]

    def frontier(self) -> list[int]:
        """Beams of this step."""
        return self._beams

    def grow(self, logits: Sequence[Tensor]) -> None:
        """Add the topk best children of every beam; the topk best of all these children are the next beams."""
        created: list[int] = []
        for beam, row in zip(self._beams, logits, strict=True):
            self.fault = self.fault or logits_fault(row, "draft", beam)
            if self.fault:
                self._beams = []
                return
            created += self._expand(beam, row)
        self._step += 1
        best = sorted(created, key=lambda node: (-self.cumulative[node], node))[: self.shape.topk]
        self._beams = sorted(best) if self._step < self.depth else []

    def _expand(self, beam: int, logits: Tensor) -> list[int]:
        scores = self.distributions.growth(logits, self.prefix + self._path_tokens(beam))
        values, indices = torch.topk(scores, min(self.shape.topk, len(scores)))
        above = 1.0 if beam == ROOT else self.cumulative[beam]
        first = len(self.tokens)
        for score, token in zip(values.tolist(), indices.tolist(), strict=True):
            if score > 0.0:
                self.tokens.append(token)
                self.parents.append(beam)
                self.score.append(score)
                self.cumulative.append(above * score)
                if self.distributions.keeps_growth:
                    self.growth.append(scores)
        return list(range(first, len(self.tokens)))

    def _path_tokens(self, node: int) -> list[int]:
        path = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]

    def finish(self) -> tuple[Draft, list[int]]:
        """The kept nodes in order of creation (by depth, then by beam), siblings by falling score."""
        ranked = sorted(range(len(self.tokens)), key=lambda node: (-self.cumulative[node], node))
        kept = sorted(ranked[: self.shape.nodes - 1])
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
        draft = Draft.chosen(
            [self.tokens[node] for node in kept],
            [place[self.parents[node]] for node in kept],
            [self.score[node] for node in kept],
            self.fault,
            [self.growth[node] for node in kept] if self.distributions.keeps_growth else None,
        )
        return draft, kept


def scratch_rows(shape: ShapeSpec) -> int:
    """Most scratch rows that drafting and verifying ``shape`` need in one cache, the root included."""
    beams = shape.topk * shape.steps if isinstance(shape, TreeShape) else shape.depth
    catch_up = shape.depth + 1
    return 1 + beams + shape.drafted + catch_up


def grower(
    shape: ShapeSpec,
    depth: int,
    distributions: Distributions,
    prefix: Sequence[int],
    stream: Stream,
) -> Grower:
    """A grower for ``shape``, limited to ``depth`` tokens (what the request and the context allow)."""
    match shape:
        case TreeShape():
            return BeamGrower(shape, depth, distributions, prefix)
        case ChainShape() | NoShape():
            return ChainGrower(min(shape.depth, depth), distributions, prefix, stream)
