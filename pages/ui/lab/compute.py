"""The rule lab's numbers, each computed once by core and cached. Torch is loaded at the first computation, so that
opening a page does not wait for it.

Errors are passed on and never cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.lab.vocabularies import LabPair

if TYPE_CHECKING:
    from core.drafting.draft import Drawing
    from core.lab.ablations import AblationRow
    from core.lab.alignment import Figure4
    from core.lab.article import Replay
    from core.lab.drawing import Drawn
    from core.lab.emission import Emission, PairFacts
    from core.lab.figures import CandidateSetRow, DivergenceCurves, Figure2, Figure8a, Figure8b, Lemma1Row
    from core.lab.losslessness import Verdict

KEPT = 256
"""Results of each kind that are kept for all visitors together."""

_remember = st.cache_data(max_entries=KEPT, show_spinner="Computing")


@_remember
def facts(pair: LabPair) -> PairFacts:
    """p and q against each other."""
    from core.lab import emission

    return emission.facts(pair.p, pair.q)


@_remember
def emissions(texts: tuple[str, ...], pair: LabPair) -> tuple[Emission, ...]:
    """Every rule at the pair."""
    from core.lab import emission

    return emission.emissions(texts, pair.p, pair.q)


@_remember
def chain(text: str, pair: LabPair, gamma: int, rounds: int, seed: int) -> Drawn:
    """Rounds of a chain, drawn."""
    from core.lab import drawing as drawn

    return drawn.chain_rounds(text, pair.p, pair.q, gamma, rounds, seed)


@_remember
def siblings(text: str, pair: LabPair, count: int, drawing: Drawing, rounds: int, seed: int) -> Drawn:
    """Positions with several candidates, drawn."""
    from core.lab import drawing as drawn

    return drawn.sibling_rounds(text, pair.p, pair.q, count, drawing, rounds, seed)


@_remember
def verdict(text: str, pair: LabPair, samples: int, seed: int) -> Verdict:
    """The statistical test of one rule."""
    from core.lab import losslessness

    return losslessness.verdict(text, pair.p, pair.q, samples, seed)


@_remember
def figure2(pair: LabPair, rules: tuple[tuple[str, str], ...]) -> Figure2:
    """Figure 2 and the one-rule chart."""
    from core.lab import figures

    return figures.figure2(pair.p, pair.q, rules)


@_remember
def figure4(kind: str, grid: tuple[float, ...], pairs: int, seed: int, sharpness: float) -> Figure4:
    """Figure 4's simulation."""
    from core.lab import alignment

    assert kind == "min_p" or kind == "eta"
    return alignment.figure4(kind, grid, pairs=pairs, seed=seed, sharpness=sharpness)


@_remember
def figure8a(pair: LabPair, ells: tuple[float, ...]) -> Figure8a:
    """Figure 8a."""
    from core.lab import figures

    return figures.figure8a(pair.p, pair.q, ells)


@_remember
def figure8b(p: float, ell: float) -> Figure8b:
    """Figure 8b."""
    from core.lab import figures

    return figures.figure8b(p, ell)


@_remember
def divergences(pair: LabPair, rule: str, topk: int) -> DivergenceCurves:
    """Lemma 2 as the draft improves."""
    from core.lab import figures

    return figures.divergences(pair.p, pair.q, rule, topk)


@_remember
def lemma1(pair: LabPair, grid: tuple[float, ...]) -> tuple[Lemma1Row, ...]:
    """Lemma 1 over a grid of min-p thresholds."""
    from core.lab import figures

    return figures.lemma1_rows(pair.p, pair.q, grid)


@_remember
def candidate_sets(pair: LabPair, rule: str, depth: int) -> tuple[CandidateSetRow, ...]:
    """Corollary 1 and Proposition 2."""
    from core.lab import figures

    return figures.candidate_sets(pair.p, pair.q, rule, depth)


@_remember
def ablation(table: int, pair: LabPair, grid: tuple[float, ...]) -> tuple[AblationRow, ...]:
    """Table 1 or 6."""
    from core.lab import ablations

    return (ablations.table1 if table == 1 else ablations.table6)(pair.p, pair.q, grid)


@_remember
def lenience_difference(pair: LabPair, ell: float) -> float:
    """How far the ceiling coded as a rule is from lenience."""
    from core.lab import ablations

    return ablations.ceiling_rule_is_lenience(pair.p, pair.q, ell)


@_remember
def replay(pair: LabPair, draft: tuple[str, ...], draws: tuple[float, ...], final_draw: float) -> Replay:
    """The article's first example."""
    from core.lab import article as example

    return example.replay(pair, draft, draws, final_draw)
