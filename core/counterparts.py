"""The run that another run should be compared with, derived by one function, with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.grammar import format_rule, format_shape
from core.matching import plain_counterpart, reference_sampling
from core.types import ChainShape, Lossless, NoDrafter, Request, SpecCascade, TreeShape

Kind = Literal["plain", "chain", "tree", "lossless"]


@dataclass(frozen=True, slots=True)
class Counterpart:
    """``request`` differs from the run's own only in what ``kind`` names; ``reason`` is a sentence for the page."""

    kind: Kind
    request: Request
    reason: str


def counterparts(request: Request) -> list[Counterpart]:
    """Every comparison that makes sense for ``request``: plain decoding of the same target, the other shape at the
    same verification budget, and for a lossy rule its matched baseline (rules.md §1; article, "Compare matched
    workload"). Empty for plain decoding."""
    if isinstance(request.drafter, NoDrafter):
        return []
    found = [
        Counterpart(
            "plain",
            plain_counterpart(request),
            "Plain decoding of the same target under the same law: what speculation has to beat.",
        )
    ]
    if shape := _other_shape(request):
        found.append(shape)
    if not isinstance(request.rule, Lossless):
        found.append(_baseline(request))
    return found


def _other_shape(request: Request) -> Counterpart | None:
    match request.shape:
        case TreeShape(topk=1) | ChainShape():
            budget = request.shape.drafted + 1
            if budget < 3:
                return None  # one candidate can't branch
            tree = TreeShape(steps=budget // 2, topk=2, nodes=budget)
            return Counterpart(
                "tree",
                request.model_copy(update={"shape": tree}),
                f"The tree {format_shape(tree)} verifies {budget} nodes a round, as {format_shape(request.shape)} does"
                + ("; its candidates are the draft's best, not samples." if request.samples_candidates else "."),
            )
        case TreeShape(nodes=nodes):
            chain = TreeShape(steps=nodes - 1, topk=1, nodes=nodes)
            return Counterpart(
                "chain",
                request.model_copy(update={"shape": chain}),
                f"The chain {format_shape(chain)} verifies {nodes} nodes a round, "
                f"as {format_shape(request.shape)} does.",
            )
        case _:
            return None


def _baseline(request: Request) -> Counterpart:
    sampling = reference_sampling(request)
    if isinstance(request.rule, SpecCascade):
        reason = (
            f"{format_rule(request.rule)} accepts only tokens with p ≥ {request.rule.p_base:g}·max p, so its fair "
            "baseline samples the target under that same allowed set, losslessly."
        )
    else:
        reason = f"{format_rule(request.rule)} mixes draft and target; its baseline is the target's own law, lossless."
    return Counterpart("lossless", request.model_copy(update={"rule": Lossless(), "sampling": sampling}), reason)
