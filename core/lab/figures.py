"""Data of the paper's Figures 2 and 8 and of Proposition 1, recomputed through the rule objects: frozen, plain numbers.

Figure 4 is in ``alignment.py``, Tables 1 and 6 in ``ablations.py``. What the paper leaves open is decided here
and explained in ``figure_notes.py``, with the places where the paper and its code differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import BadInput
from core.grammar import parse_rule
from core.lab.emission import Vector, emission, truncation_mask
from core.lab.theory import (
    Numbers,
    TruncationEffect,
    block_efficiency,
    corollary1,
    delta,
    first_allowed,
    gap,
    kl_eagle,
    kl_eagle_floor,
    kl_sd,
    lemma1,
    lemma1_as_printed,
    pair,
)
from core.rules.table import token_rule
from core.types import Lenience, MinPCeiling, OvershootCeiling

# -- Figure 2 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of Figure 2: a rule's law over the tokens in the figure's order; ``ceiling`` is p/ℓ where it has one,
    ``inside`` the allowed set where it has one."""

    title: str
    rule: str
    law: Vector
    ceiling: Vector | None
    inside: tuple[bool, ...] | None
    mass: float


@dataclass(frozen=True, slots=True)
class Figure2:
    """Tokens sorted by falling p (``order`` holds their places in the vocabulary)."""

    order: tuple[int, ...]
    p: Vector
    q: Vector
    overlap: Vector
    panels: tuple[Panel, ...]


def figure2(p: Numbers, q: Numbers, rules: Sequence[tuple[str, str]]) -> Figure2:
    """Panels of (title, rule text): in the paper CoS, lenience and truncation."""
    target, draft = pair(p, q)
    order = sorted(range(len(target)), key=lambda token: (-float(target[token]), token))
    panels = []
    for title, text in rules:
        found = emission(text, target, draft)
        spec = parse_rule(text)
        capped = isinstance(spec, Lenience | OvershootCeiling | MinPCeiling)
        ceiling = tuple(float(target[token]) / token_rule(spec).ell for token in order) if capped else None
        inside = None if found.allowed is None else tuple(found.allowed[token] for token in order)
        law = tuple(found.induced[token] for token in order)
        panels.append(Panel(title, found.rule, law, ceiling, inside, found.mass))
    return Figure2(
        order=tuple(order),
        p=tuple(float(target[token]) for token in order),
        q=tuple(float(draft[token]) for token in order),
        overlap=tuple(float(torch.minimum(target, draft)[token]) for token in order),
        panels=tuple(panels),
    )


# -- Figure 8 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve8a:
    """Δ along the line from p (TV 0) to the draft q; None where Δ has no value (TV 0)."""

    ell: float
    delta: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Figure8a:
    """``tv`` is shared by the curves."""

    tv: Vector
    curves: tuple[Curve8a, ...]


def figure8a(p: Numbers, q: Numbers, ells: Sequence[float], points: int = 61) -> Figure8a:
    """Δ (Eq. 11) against TV(p, q_t) for q_t = p + t(q − p), t from 0 to 1. Raises BadInput where p = q."""
    target, draft = pair(p, q)
    distance = gap(draft, target).tv
    if distance <= 0.0:
        raise BadInput("p and q are equal, so there is no way from one to the other: change one of them.")
    steps = [step / (points - 1) for step in range(points)]
    drafts = [target + step * (draft - target) for step in steps]
    return Figure8a(
        tuple(step * distance for step in steps),
        tuple(Curve8a(ell, tuple(delta(target, one, ell) for one in drafts)) for ell in ells),
    )


@dataclass(frozen=True, slots=True)
class Figure8b:
    """Output against q(x) at one p(x) = ``p``: the mixture ℓp + (1−ℓ)q, the ceiling min(q, p/ℓ), and the ablation's
    formula as printed. ``ceiling_at`` = p/ℓ; ``crossing`` = p(1+ℓ)/ℓ, from where the mixture is above the ceiling."""

    p: float
    ell: float
    q: Vector
    mixture: Vector
    ceiling: Vector
    ablation: Vector
    ceiling_at: float
    crossing: float


def figure8b(p: float, ell: float, points: int = 201) -> Figure8b:
    """Both schemes at one token. Raises BadInput for p outside (0, 1] or ℓ outside (0, 1]."""
    if not 0.0 < p <= 1.0 or not 0.0 < ell <= 1.0:
        raise BadInput(f"p = {p} and ℓ = {ell}: both lie above 0 and are at most 1.")
    q = tuple(place / (points - 1) for place in range(points))
    mixture = tuple(ell * p + (1.0 - ell) * each for each in q)
    return Figure8b(
        p=p,
        ell=ell,
        q=q,
        mixture=mixture,
        ceiling=tuple(min(each, p / ell) for each in q),
        ablation=tuple(mixed if each <= p / ell else p / ell for each, mixed in zip(q, mixture, strict=True)),
        ceiling_at=p / ell,
        crossing=p * (1.0 + ell) / ell,
    )


# -- Proposition 1 --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DivergenceCurves:
    """KL_SD and KL_EAGLE along the line from the draft to the target; ``floor`` is Proposition 1's bound."""

    rule: str
    tv: Vector
    kl_sd: tuple[float | None, ...]
    kl_eagle: tuple[float | None, ...]
    floor: float
    allowed: int


def divergences(p: Numbers, q: Numbers, rule: str, topk: int = 10, points: int = 61) -> DivergenceCurves:
    """Lemma 2 as q → p along q_t = p + t(q − p), t from 0 to 1. EAGLE's candidates are the ``topk`` most likely of q_t,
    best first; None where none of them is inside A (nothing is accepted, p_Θ is emitted)."""
    target, draft = pair(p, q)
    inside = truncation_mask(rule, target)
    steps = [step / (points - 1) for step in range(points)]
    drafts = [target + step * (draft - target) for step in steps]
    first = [first_allowed(_ranked(one)[:topk], inside) for one in drafts]
    return DivergenceCurves(
        rule=rule,
        tv=tuple(gap(one, target).tv for one in drafts),
        kl_sd=tuple(kl_sd(target, one, inside) for one in drafts),
        kl_eagle=tuple(None if token is None else kl_eagle(target, inside, token) for token in first),
        floor=kl_eagle_floor(target, inside),
        allowed=int(inside.sum()),
    )


# -- Lemma 1, Corollary 1, Proposition 2 ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lemma1Row:
    """Lemma 1 at one min-p threshold; ``printed`` is Eq. 14 to the letter."""

    p_base: float
    effect: TruncationEffect
    printed: float


def lemma1_rows(p: Numbers, q: Numbers, grid: Sequence[float]) -> tuple[Lemma1Row, ...]:
    """Lemma 1 for the min-p set of each threshold in ``grid``."""
    masks = [(base, truncation_mask(f"spec_cascade:{base!r}", p)) for base in grid]
    return tuple(Lemma1Row(base, lemma1(p, q, mask), lemma1_as_printed(p, q, mask)) for base, mask in masks)


@dataclass(frozen=True, slots=True)
class CandidateSetRow:
    """Corollary 1 for the set C of the draft's ``size`` most likely tokens: how often one of C is accepted at a
    position. ``*_efficiency``: Proposition 2 for a tree with C at each of its levels, accepted tokens a round."""

    size: int
    candidates: tuple[int, ...]
    lossless: float
    spec_cascade: float
    lossless_efficiency: float
    cascade_efficiency: float


def candidate_sets(p: Numbers, q: Numbers, rule: str, depth: int, most: int = 10) -> tuple[CandidateSetRow, ...]:
    """Sets of 1 to ``most`` candidates, p and q the same at every prefix of a tree of ``depth`` levels."""
    target, draft = pair(p, q)
    inside, ranked = truncation_mask(rule, target), _ranked(draft)
    rows = []
    for size in range(1, min(most, len(ranked)) + 1):
        found = corollary1(target, inside, ranked[:size])
        rows.append(
            CandidateSetRow(
                size=size,
                candidates=tuple(ranked[:size]),
                lossless=found.lossless,
                spec_cascade=found.spec_cascade,
                lossless_efficiency=block_efficiency([found.lossless] * depth),
                cascade_efficiency=block_efficiency([found.spec_cascade] * depth),
            )
        )
    return tuple(rows)


def _ranked(q: Tensor) -> list[int]:
    return sorted(range(len(q)), key=lambda token: (-float(q[token]), token))
