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
    host, and :meth:`finish` reads tokens, scores and faults at once. So broken logits and rows without mass end the
    chain only in :meth:`finish`; until then, broken logits count as a row of zeros, since the run fails anyway.
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
        self.scores: list[Tensor] = []
        self.q: list[Tensor] = []
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
        scores = self.distributions.penalised(logits[0].masked_fill(broken, 0.0), self.prefix)
        q = self.distributions.draft(scores)
        self.broken.append(broken)
        self.scores.append(scores)
        self.q.append(q)
        self.prefix.append(drawn(q, self.stream()))

    def finish(self) -> tuple[Draft, list[int]]:
        """The chain up to any broken logits or row without mass, with each candidate's q. The host reads from the
        device here, once."""
        growth = self._growth()
        tokens, score, broken, empty = self._read(growth)
        length = next((i for i, ends in enumerate(zip(broken, empty, strict=True)) if any(ends)), len(tokens))
        draft = Draft.drawn(
            tokens[:length],
            self.parents[:length],
            self.q[:length],
            score[:length],
            fault=fault_after("draft", length - 1) if any(broken[length : length + 1]) else None,
            growth=growth[:length] if self.distributions.keeps_growth else None,
        )
        return draft, list(range(length))

    def _growth(self) -> Sequence[Tensor]:
        """The drafter's own probabilities [V] at each candidate's position, formed together."""
        if self.distributions.draws_growth or not self.q:
            return self.q
        return self.distributions.growth(torch.stack(self.scores)).unbind()

    def _read(self, growth: Sequence[Tensor]) -> tuple[list[int], list[float], list[bool], list[bool]]:
        """Of each candidate: the token, the drafter's own probability of it, whether its logits are broken, and whether
        its q is without mass. float64 holds all four exactly."""
        if not self.q:
            return [], [], [], []
        drawn = self.prefix.drawn
        score = [row.gather(0, token[None])[0] for row, token in zip(growth, drawn, strict=True)]
        empty = [q[0].isnan() for q in self.q]
        columns = [torch.stack(column).double() for column in (drawn, score, self.broken, empty)]
        tokens, scores, broken, without_mass = torch.stack(columns).tolist()
        return [int(token) for token in tokens], scores, list(map(bool, broken)), list(map(bool, without_mass))


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
        before = self.prefix + self._path_tokens(beam)
        scores = self.distributions.growth(self.distributions.penalised(logits, before))
        values, indices = torch.topk(scores, min(self.shape.topk, len(scores)))
        above = 1.0 if beam == ROOT else self.cumulative[beam]
        first = len(self.tokens)
        for score, token in zip(values.tolist(), indices.tolist(), strict=True):
            if score > 0.0:  # false for NaN as well: a row without mass has no children
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
