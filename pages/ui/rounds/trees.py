"""Rounds as HTML rows: a chain runs along the line, a tree branches downwards where siblings part.

The same markup serves both, since a chain is a tree with one branch. ``preview`` draws a shape before any run.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.records import ROOT, Round
from core.results.metrics import ROUNDING, distortion_of
from core.types import ChainShape, NoShape, ShapeSpec, TreeShape
from pages.ui.kit import numbers, palette
from pages.ui.rounds import tokens

FOLD_ABOVE = 12
"""Number of candidates above which a round's wholly unreached branches are folded away."""

BLOCK = 10
"""Rounds in one page element: a finished block never changes, so the browser need not redraw it for later rounds."""

PREVIEW_DECAY = 0.62
"""Preview only: assumed ratio of a sibling's probability to that of the next better sibling."""

PREVIEW_MOST = 48
"""Preview only: most dots drawn."""


def rows(rounds: Sequence[Round], plain: bool, run_id: str = "") -> str:
    """Rounds as rows; plain rounds, of one chip each, share a line. With ``run_id``, a click on a round's number shows
    it in that run's inspector."""
    if plain:
        chips = "".join(tokens.committed(r) for r in rounds)
        return f'<div class="sl-round sl-plainrow">{_number(rounds[0].index, run_id)}<div>{chips}</div></div>'
    return "".join(_row(r, run_id) for r in rounds)


def blocks(rounds: Sequence[Round]) -> list[Sequence[Round]]:
    """Rounds in blocks that start at multiples of :data:`BLOCK`, so that a sliding window keeps the same blocks."""
    cut: list[list[Round]] = []
    for r in rounds:
        if not cut or r.index % BLOCK == 0:
            cut.append([])
        cut[-1].append(r)
    return list(cut)


def _row(round_: Round, run_id: str) -> str:
    end = tokens.committed(round_)
    arrow = f"<span class=sl-to>→</span>{end}" if end else ""
    if not round_.nodes:
        drawn = f'<span class="sl-none">no draft</span>{arrow}'
    elif _branching(round_):
        drawn = _Branches(round_, arrow).html()
    else:
        drawn = _Branches(round_).html() + arrow
    marks = " ".join(
        f'<span title="{palette.STATES[fate].label}">{palette.STATES[fate].mark}&#8239;{round_.count(fate)}</span>'
        for fate in ("accepted", "rejected", "unreached", "cut")
        if round_.count(fate)
    )
    return (
        f'<div class="sl-round">{_number(round_.index, run_id)}<div class="sl-cands">{drawn}</div>'
        f'<div class="sl-meta">{marks}<br>{numbers.seconds(round_.wall_s)}{_distortion(round_)}</div></div>'
    )


def _distortion(round_: Round) -> str:
    """Mark of a round whose rule emitted another law than the reference; empty if the difference is only rounding."""
    found = distortion_of([round_])
    tv = found.get("distortion_tv")
    if tv is None or tv < ROUNDING:
        return ""
    tip = f"Distortion: TV {numbers.rate(tv)}, KL {numbers.nats(found['distortion_kl'])} nats, means over "
    tip += f"{found['distortion_positions']} tested positions"
    if found["distortion_kl_undefined"]:
        tip += f"; {found['distortion_kl_undefined']} can emit what the reference law never does and have no KL"
    return f'<br><span title="{tip}">≠ TV {numbers.rate(tv)}</span>'


def _number(index: int, run_id: str) -> str:
    if not run_id:
        return f'<div class="sl-no" title="round {index + 1}">{index + 1}</div>'
    tip = f"Inspect round {index + 1}"
    return (
        f'<div class="sl-no"><span role="button" tabindex="0" data-run="{run_id}" data-round="{index}" '
        f'title="{tip}" aria-label="{tip}">{index + 1}</span></div>'
    )


def _branching(round_: Round) -> bool:
    parents = [node.parent for node in round_.nodes]
    return len(set(parents)) < len(parents)


class _Branches:
    """Candidates of a round, nested by parent; ``end``, the token that the target added, ends the accepted path."""

    def __init__(self, round_: Round, end: str = "") -> None:
        self.nodes = round_.nodes
        self.end = end
        self.at = tokens.path_end(round_) if end else None
        self.children: dict[int, list[int]] = {}
        for index, node in enumerate(round_.nodes):
            self.children.setdefault(node.parent, []).append(index)
        self.untouched = self._untouched()

    def html(self) -> str:
        roots = self.children.get(ROOT, [])
        folding = len(self.nodes) > FOLD_ABOVE
        if len(roots) == 1 and self.at != ROOT:
            return self._stem(roots[0], folding)
        return self._fork(roots, folding, ended=self.at == ROOT)

    def _stem(self, index: int, folding: bool) -> str:
        """A candidate and its descendants in a row as long as each is an only child, then the fork."""
        chips = []
        while True:
            chips.append(tokens.candidate(self.nodes[index]))
            below = self.children.get(index, [])
            if index == self.at:
                return "".join(chips) + (self._fork(below, folding, ended=True) if below else self.end)
            if len(below) != 1:
                return "".join(chips) + (self._fork(below, folding) if below else "")
            index = below[0]

    def _fork(self, siblings: Sequence[int], folding: bool, ended: bool = False) -> str:
        """Siblings one below the other, then the end if all were rejected (``ended``). Unreached branches are folded
        away, all at once or one by one."""
        if folding and all(self.untouched[index] for index in siblings):
            return _folded(sum(self.untouched[index] for index in siblings), self._fork(siblings, folding=False))
        items = []
        for index in siblings:
            hidden = self.untouched[index]
            fold = folding and hidden > 1
            body = self._stem(index, folding and not fold)
            on = ' class="sl-on"' if self.nodes[index].fate == "accepted" else ""
            items.append(f"<li{on}>{_folded(hidden, body) if fold else body}</li>")
        if ended:
            items.append(f'<li class="sl-on">{self.end}</li>')
        return f'<ul class="sl-fork">{"".join(items)}</ul>'

    def _untouched(self) -> list[int]:
        """Per node: number of candidates in its branch if none of them was reached, else 0."""
        size = [1 if node.fate == "unreached" else 0 for node in self.nodes]
        whole = [node.fate == "unreached" for node in self.nodes]
        for index in range(len(self.nodes) - 1, -1, -1):  # parents come before their children
            parent = self.nodes[index].parent
            if parent != ROOT:
                size[parent] += size[index]
                whole[parent] = whole[parent] and whole[index]
        return [count if all_ else 0 for count, all_ in zip(size, whole, strict=True)]


def _folded(count: int, html: str) -> str:
    return f"<details><summary>{count} unreached</summary>{html}</details>"


def preview(shape: ShapeSpec) -> str:
    """The shape as dots: the root and its candidates. The branches of a real tree follow the draft's scores."""
    parents = preview_parents(shape)
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)

    def stem(index: int) -> str:
        dots = ""
        while True:
            dots += '<span class="sl-dot"></span>' if index != ROOT else '<span class="sl-dot sl-root">root</span>'
            below = children.get(index, [])
            if len(below) != 1:
                fork = "".join(f"<li>{stem(child)}</li>" for child in below)
                return dots + (f'<ul class="sl-fork">{fork}</ul>' if below else "")
            index = below[0]

    more = f"<span>… {shape.drafted} candidates</span>" if shape.drafted > len(parents) else ""
    return f'<div class="sl-preview" role="img" aria-label="{summary(shape)}">{stem(ROOT)}{more}</div>'


def summary(shape: ShapeSpec) -> str:
    """The shape in one sentence: candidates, depth, and the verification budget."""
    if isinstance(shape, NoShape):
        return "One token per pass of the target; nothing is drafted."
    budget = f"{shape.drafted} candidates and the root in one pass of the target"
    if isinstance(shape, ChainShape):
        return f"One path: {budget}."
    return f"Up to {shape.depth} deep, {shape.topk} wide: {budget}."


def preview_parents(shape: ShapeSpec) -> list[int]:
    """Parents of an illustrative draft of this shape, in drafting order, at most :data:`PREVIEW_MOST` of them.

    A tree grows as SGLang's does (each step expands the ``topk`` best beams, the best ``nodes − 1`` are kept) with
    made-up scores: a sibling's chance falls by :data:`PREVIEW_DECAY` with its rank.
    """
    if not isinstance(shape, TreeShape):
        return list(range(ROOT, min(shape.drafted, PREVIEW_MOST) - 1))
    grown: list[tuple[float, int, int]] = []  # score, parent, depth
    beams: list[tuple[float, int]] = [(1.0, ROOT)]
    for depth in range(1, shape.steps + 1):
        fresh = []
        for score, parent in beams:
            for rank in range(shape.topk):
                grown.append((score * (1 - PREVIEW_DECAY / 2) * PREVIEW_DECAY**rank, parent, depth))
                fresh.append((grown[-1][0], len(grown) - 1))
        beams = sorted(fresh, reverse=True)[: shape.topk]
        if len(grown) > 8 * PREVIEW_MOST and depth > 4:
            break
    best = sorted(range(len(grown)), key=lambda i: (-grown[i][0], grown[i][2], i))
    kept = sorted(best[: min(shape.drafted, PREVIEW_MOST)])
    place = {old: new for new, old in enumerate(kept)}
    return [place.get(grown[old][1], ROOT) for old in kept]
