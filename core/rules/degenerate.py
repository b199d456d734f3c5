"""Notices about a request whose rule has nothing to work on there: pages and terminal show them before a run.

They depend on the whole request (drafter, sampling, shape), so they are not part of the catalogue, which describes
rules alone.
"""

from __future__ import annotations

from core.grammar import format_rule
from core.rules.catalogue import is_lossless
from core.types import (
    AdaptiveInterpolation,
    Block,
    CosCD,
    CosWE,
    Lenience,
    Lossless,
    MinPCeiling,
    NoDrafter,
    OvershootCeiling,
    Request,
    TargetLawSpec,
    TruncationSpec,
    Typical,
)


def changes_output(request: Request) -> bool:
    """True if the request's rule can change the output's distribution: it is lossy, and the request samples, or the
    rule judges by a law r* of its own, whose most probable token need not be the target's."""
    if is_lossless(request.rule):
        return False
    return not request.sampling.greedy or isinstance(request.rule, TargetLawSpec)


def notices(request: Request) -> list[str]:
    """Sentences; empty for a request whose rule does what its name promises. Block verification of a branching tree
    has none, because :class:`~core.types.Request` refuses it."""
    if isinstance(request.drafter, NoDrafter) or isinstance(request.rule, Lossless):
        return []
    if request.sampling.greedy:
        return [_greedy(request)]
    found = [sentence for sentence in (_parameters(request),) if sentence]
    if not request.samples_candidates:
        found += [sentence for sentence in (_one_hot(request),) if sentence]
    return found


def _greedy(request: Request) -> str:
    name = format_rule(request.rule)
    if not isinstance(request.rule, TargetLawSpec):
        return (
            f"At temperature 0 {name} changes nothing: it accepts what lossless verification accepts, and the output "
            "is the target's greedy text."
        )
    if request.samples_candidates or request.drafter.kind != "prompt_lookup":
        return (
            f"At temperature 0 {name} accepts the most probable token of its own law r*, formed from p and q without "
            "temperature; the token after a fully accepted draft is the target's."
        )
    return (
        f"At temperature 0 {name} accepts the most probable token of its own law r*, and a copied candidate counts "
        "as q = 1."
    )


def _parameters(request: Request) -> str | None:
    match request.rule:
        case Block():
            return (
                "Block verification judges a chain as a whole, so no position of it has a law of its own: distortion "
                "is not measured. The chain's law is the target's."
            )
        case Lenience(ell=1.0) | CosWE(draft_weight=0.0):
            return f"{format_rule(request.rule)} is the lossless rule: it changes nothing."
        case CosWE(draft_weight=1.0):
            return "cos_we:1.0 accepts every candidate: inside a draft the output is the draft's, unverified."
        case AdaptiveInterpolation() | OvershootCeiling():
            return f"The paper's formula of {request.rule.kind} doesn't sum to one; it is renormalised here."
        case _:
            return None


def _one_hot(request: Request) -> str | None:
    """A notice for deterministic candidates, whose q is one-hot whatever probability the drafter gave them (rules.md
    §2)."""
    name = format_rule(request.rule)
    match request.rule:
        case CosCD():
            return (
                f"These candidates are not sampled, so q is one-hot: p/q^μ leaves the first candidate alone, and "
                f"{name} accepts it wherever the target gives it any probability."
            )
        case CosWE(draft_weight=weight):
            return (
                f"These candidates are not sampled, so q is one-hot: {name} raises the first candidate of a position "
                f"by {weight:g} instead of mixing in the draft's distribution."
            )
        case AdaptiveInterpolation() | OvershootCeiling():
            return (
                f"These candidates are not sampled, so q is one-hot: {name} raises the first candidate of a position "
                "instead of mixing in the draft's distribution."
            )
        case Lenience(ell=ell) if ell < 1.0:
            return f"These candidates are not sampled, so q is one-hot: {name} accepts with min(1, p/{ell:g})."
        case MinPCeiling(ell=ell):
            return (
                f"These candidates are not sampled, so q is one-hot: {name} takes the first candidate in its set, and "
                f"others with min(1, p/{ell:g})."
            )
        case Typical(hard=False):
            return (
                f"These candidates are not sampled: {name} tests each with min(1, p/τ), p being what earlier "
                "rejections left."
            )
        case _ if isinstance(request.rule, TruncationSpec):
            sentence = (
                f"These candidates are not sampled: {name} takes the first one inside its set, so p and q play no part."
            )
            if request.rule.redraw == "draft_in_set":
                sentence += " A rejected position has no draft mass left in the set and is drawn from the target's."
            return sentence
        case _:
            return None
