"""Counterparts of a run: the runs that it should be compared with, each with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.grammar import format_allowed, format_rule
from core.results.matching import plain_counterpart, reference_sampling
from core.types import (
    MAX_STEPS,
    Block,
    ChainShape,
    Lossless,
    MinPCeiling,
    NoDrafter,
    Request,
    SpecCascade,
    TreeShape,
    Truncation,
    TruncationSpec,
    Typical,
)

Kind = Literal["plain", "chain", "tree", "best", "lossless"]


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Counterpart of a run: ``request`` differs from the run's own only in what ``kind`` names; ``reason`` is a
    sentence for the page."""

    kind: Kind
    request: Request
    reason: str


def counterparts(request: Request) -> list[Counterpart]:
    """Every comparison that makes sense for ``request``: plain decoding of the same target, the other shape with the
    same verification budget, and for a lossy rule its matched baseline (rules.md §1; article, "Compare matched
    workload"). Empty for plain decoding."""
    if isinstance(request.drafter, NoDrafter):
        return []
    found = [
        Counterpart(
            "plain",
            plain_counterpart(request),
            "Plain decoding with the same model and sampling.",
        )
    ]
    found += [other for other in (_other_shape(request), _best_chain(request)) if other]
    if not isinstance(request.rule, Lossless):
        found.append(baseline(request))
    return found


def _other_shape(request: Request) -> Counterpart | None:
    match request.shape:
        case TreeShape(topk=1) | ChainShape():
            budget = request.shape.drafted + 1
            if budget < 3 or isinstance(request.rule, Block):
                return None  # a single candidate can't branch, and a block must not
            steps = min(budget // 2, MAX_STEPS)
            topk = 2 if budget <= TreeShape(steps=steps, topk=2, nodes=2).most + 1 else 3
            tree = TreeShape(steps=steps, topk=topk, nodes=budget)
            return Counterpart(
                "tree",
                request.model_copy(update={"shape": tree}),
                f"A tree with the same budget ({tree.steps} deep, {tree.topk} wide, {budget} nodes a round)"
                + ("; its candidates are the draft's best, not samples." if request.samples_candidates else "."),
            )
        case TreeShape(nodes=nodes):
            deepest = nodes - 1 <= MAX_STEPS
            chain = TreeShape(steps=nodes - 1, topk=1, nodes=nodes) if deepest else ChainShape(gamma=nodes - 1)
            other = request.model_copy(update={"shape": chain})
            return Counterpart(
                "chain",
                other,
                f"A chain with the same budget ({nodes} nodes a round)"
                + ("; its candidates are samples, not the draft's best." if other.samples_candidates else "."),
            )
        case _:
            return None


def _best_chain(request: Request) -> Counterpart | None:
    """The chain of the draft's best tokens beside one of samples: a tree differs from that chain in its shape alone."""
    shape = request.shape
    if not isinstance(shape, ChainShape) or not request.samples_candidates or shape.gamma > MAX_STEPS:
        return None
    if isinstance(request.rule, Block):
        return None  # a block is verified over samples
    best = TreeShape(steps=shape.gamma, topk=1, nodes=shape.gamma + 1)
    return Counterpart(
        "best",
        request.model_copy(update={"shape": best}),
        "The same chain of the draft's most probable tokens instead of samples, as a tree has them.",
    )


def baseline(request: Request) -> Counterpart:
    """The lossless run that a rule is compared with, and why: under the same allowed set for a truncation rule, under
    the same sampling for every other rule (rules.md §1 "matched baseline")."""
    rule, sampling = request.rule, reference_sampling(request)
    name = format_rule(rule)
    match rule:
        case Block():
            reason = (
                "Block verification is lossless: its baseline tests the same draft token by token, under the same law."
            )
        case SpecCascade(p_base=p_base):
            reason = (
                f"{name} accepts only tokens with p ≥ {p_base:g}·max p, so its fair baseline samples the target under "
                "that same allowed set, losslessly."
            )
        case Typical() | Truncation():
            reason = (
                f"{name} accepts inside an allowed set of the target ({format_allowed((rule.allowed,))}), so its fair "
                "baseline samples the target under that same set, losslessly."
            )
        case MinPCeiling():
            reason = (
                f"{name} lets the draft speak inside its set and caps it outside, yet emits tokens of any p: its "
                "baseline is the target's own law, lossless."
            )
        case _:
            reason = f"{name} mixes draft and target; its baseline is the target's own law, lossless."
    if isinstance(rule, TruncationSpec) and request.sampling.greedy:
        reason = (
            f"Greedy decoding has one token in the allowed set of {name}: its baseline is lossless greedy decoding."
        )
    return Counterpart("lossless", request.model_copy(update={"rule": Lossless(), "sampling": sampling}), reason)
