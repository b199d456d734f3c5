"""Rounds of any shape, walked by seeded coins, with every tested position's distributions: for inspector and race."""

from __future__ import annotations

import random
from dataclasses import replace

from core.records import ROOT, Distortion, Fate, Node, Position, Round, Source, TopToken
from core.types import ChainShape, ShapeSpec
from pages.ui.rounds.trees import preview_parents
from tests.helpers import sample

WORDS = (" the", " quick", " brown", " fox", " jumps", "\n", " lighthouse", " é", " over", "ing", " a", ".")


def walked(shape: ShapeSpec, index: int = 0, measured: bool = True, chance: float = 0.7) -> Round:
    """A round of this shape; each test passes with ``chance``. ``measured``: residual, induced law and distortion are
    there as well."""
    random_ = random.Random(1000 * index + shape.drafted)
    parents = preview_parents(shape)
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    tests: dict[int, tuple[float, float]] = {}
    path: list[int] = []
    visited, at = [ROOT], ROOT
    while True:
        below = [node for node, parent in enumerate(parents) if parent == at]
        passed = None
        for node in below:
            tests[node] = (random_.random(), chance)
            if tests[node][0] < chance:
                passed = node
                break
        if passed is None:
            source: Source = "correction" if below else "bonus"
            break
        path.append(passed)
        at = passed
        visited.append(at)
    fates: list[Fate] = [
        "accepted" if node in path else "rejected" if node in tests else "unreached" for node in range(len(parents))
    ]
    soft = isinstance(shape, ChainShape)
    nodes = tuple(
        Node(
            token=100 + node,
            text=WORDS[(node + index) % len(WORDS)],
            parent=parent,
            depth=depths[node],
            fate=fates[node],
            p=0.35 if node in tests else None,
            q=0.5 if soft else 1.0,
            score=round(0.9 / (1 + node), 3),
            accept_prob=tests[node][1] if node in tests else None,
            u=tests[node][0] if node in tests else None,
        )
        for node, parent in enumerate(parents)
    )
    last = " end" if index % 7 else " é"
    record = sample.finish(
        nodes, index, (*(100 + node for node in path), 99), (*(nodes[node].text for node in path), last), source
    )
    positions = tuple(_position(nodes, node, measured, last, soft) for node in visited)
    return replace(record, positions=positions)


def _position(nodes: tuple[Node, ...], at: int, measured: bool, last: str, soft: bool) -> Position:
    below = [node for node in nodes if node.parent == at]
    named = [(node.token, node.text, 0.35 / (place + 1)) for place, node in enumerate(below)]
    named += [(99, last, 0.2), *((500 + i, WORDS[i % len(WORDS)], 0.2 / 2**i) for i in range(20 - len(below) - 1))]
    drafted = {node.token for node in below}
    top = tuple(
        TopToken(
            token,
            text,
            p,
            None if not below else (0.5 if soft else 1.0) if token in drafted else 0.0,
            (0.0 if token in drafted else p) if measured and below else None,
            p if measured and below else None,
        )
        for token, text, p in sorted(named, key=lambda one: -one[2])
    )
    distortion = Distortion(0.0, 0.0, 0.0, None) if measured and below else None
    return Position(at, top, 0.031, 0.5 if below and soft else 0.0 if below else None, distortion)
