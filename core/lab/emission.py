"""What a rule does at one p and q, as plain records for the rule lab and the command line, computed in float64 by the
rule objects.

Imports torch, so pages import it only when they compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.decoding.distortion import reference
from core.errors import BadInput
from core.grammar import format_rule, parse_rule, rule_text
from core.lab.theory import Numbers, gap, overshoot, pair
from core.rules.catalogue import RULES
from core.rules.table import induced, token_rule
from core.rules.target_law import TargetLawRule
from core.rules.token_rule import TokenRule
from core.rules.truncation import TruncationRule
from core.types import CosCD

Vector = tuple[float, ...]

_VECTORS = (
    "lossless",
    "block",
    "lenience:0.5",
    "lenience:0.8",
    "cos_we:0.5",
    "cos_we:0.2",
    "cos_cd:0.5",
    "spec_cascade:0.5,redraw=draft_in_set",
    "spec_cascade:0.5,redraw=target",
    "spec_cascade:0.5,redraw=target_in_set",
    "typical:0.4,redraw=target_in_set",
    "typical:0.4,redraw=target,hard=false",
    "typical:0.3,redraw=target_in_set",
    "truncation:top_k=2,redraw=target_in_set",
    "overshoot_ceiling:0.8",
    "adaptive_interpolation:0.5",
    "min_p_ceiling:0.9,ell=0.95",
    "lenience:0.95",
)
"""The rules of rules.md's table of test vectors, and block verification."""

TABLE: tuple[str, ...] = (
    *_VECTORS,
    *(rule_text(entry, {}) for entry in RULES if entry.name not in {text.partition(":")[0] for text in _VECTORS}),
)
"""What ``python -m core rules`` shows without --rule: those, and any further rule at its defaults."""


@dataclass(frozen=True, slots=True)
class Emission:
    """One rule at one position. Vectors are over the vocabulary; ``accepted`` = q·accept, ``mass`` its sum.

    ``tv``, ``kl``, ``escaped``: ``induced`` against p. ``reference``: what the rule is judged by, p_Θ for a truncation
    rule and p for all others, with ``ref_tv``, ``ref_kl``, ``ref_escaped`` against it. KL in nats, None where the law
    leaves the support. ``overshoot``: expected share of tested tokens with q > p/ℓ. ``note``: a sentence
    where the rule degenerates here, else empty.
    """

    rule: str
    accept: Vector
    accepted: Vector
    residual: Vector
    induced: Vector
    bonus: Vector
    mass: float
    tv: float
    kl: float | None
    escaped: float
    overshoot: float
    reference: Vector
    ref_tv: float
    ref_kl: float | None
    ref_escaped: float
    allowed: tuple[bool, ...] | None
    note: str


@dataclass(frozen=True, slots=True)
class PairFacts:
    """p and q against each other. ``acceptance`` = Σ min(p, q) = 1 − ``tv``; entropies in nats."""

    acceptance: float
    tv: float
    kl: float | None
    escaped: float
    entropy_p: float
    entropy_q: float
    overlap: Vector


def facts(p: Numbers, q: Numbers) -> PairFacts:
    """How well the draft matches. ``kl`` is KL(q‖p) in nats. Raises BadInput for what is no distribution."""
    target, draft = pair(p, q)
    overlap = torch.minimum(target, draft)
    found = gap(draft, target)
    return PairFacts(
        acceptance=min(1.0, float(overlap.sum())),
        tv=found.tv,
        kl=found.kl,
        escaped=found.escaped,
        entropy_p=float(torch.special.entr(target).sum()),
        entropy_q=float(torch.special.entr(draft).sum()),
        overlap=_plain(overlap),
    )


def emission(text: str, p: Numbers, q: Numbers) -> Emission:
    """The rule that ``text`` names, at p and q.

    Raises:
        BadInput: no such rule, a parameter out of its range, or what is no distribution.
    """
    spec = parse_rule(text)
    target, draft = pair(p, q)
    rule = token_rule(spec)
    accept = rule.accept(target, draft)
    law = induced(rule, target, draft)
    allowed = allowed_set(rule, target)
    judged_by = reference(rule, target)
    to_p, to_reference = gap(law, target), gap(law, judged_by)
    return Emission(
        rule=format_rule(spec),
        accept=_plain(accept),
        accepted=_plain(draft * accept),
        residual=_plain(rule.residual(target, draft)),
        induced=_plain(law),
        bonus=_plain(rule.bonus(target)),
        mass=min(1.0, float((draft * accept).sum())),
        tv=to_p.tv,
        kl=to_p.kl,
        escaped=to_p.escaped,
        overshoot=overshoot(target, draft, rule.ell),
        reference=_plain(judged_by),
        ref_tv=to_reference.tv,
        ref_kl=to_reference.kl,
        ref_escaped=to_reference.escaped,
        allowed=None if allowed is None else tuple(bool(inside) for inside in allowed.tolist()),
        note=_note(rule, target, draft),
    )


def emissions(texts: Sequence[str], p: Numbers, q: Numbers) -> tuple[Emission, ...]:
    """:func:`emission` of each; raises BadInput for the first that is none."""
    return tuple(emission(text, p, q) for text in texts)


def _note(rule: TokenRule, p: Tensor, q: Tensor) -> str:
    if isinstance(rule, TruncationRule) and rule.falls_back(q, rule.allowed(p)):
        return "q has no mass on the allowed set: a rejection draws from p inside the set instead."
    contrastive = isinstance(rule, TargetLawRule) and isinstance(rule.spec, CosCD)
    if contrastive and not bool(((p > 0.0) & (q > 0.0)).any()):
        return "p and q share no token, so nothing is left of p/q^μ: r* is p."
    return ""


def allowed_set(rule: TokenRule, p: Tensor) -> Tensor | None:
    """A of a truncation rule as a boolean mask [V]; None for the others."""
    return rule.allowed(p) if isinstance(rule, TruncationRule) else None


def truncation_mask(text: str, p: Numbers) -> Tensor:
    """A [V] of the truncation rule ``text`` at p. Raises BadInput for a rule without an allowed set."""
    target, _ = pair(p, p)
    found = allowed_set(token_rule(parse_rule(text)), target)
    if found is None:
        raise BadInput(f"{text!r} has no allowed set: it is no truncation rule.")
    return found


def _plain(row: Tensor) -> Vector:
    return tuple(float(value) for value in row.tolist())
