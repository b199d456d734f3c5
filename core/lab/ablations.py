"""The paper's Tables 1 and 6 as laws: what lenience's two mechanisms, alone and combined, emit at one p and q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from core.lab.emission import Emission, Vector, emission
from core.lab.theory import Numbers, delta, lenience_law, pair


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One row of Table 1 or 6 at one p and q, averaged over the parameter's grid; ``each`` holds its points.

    ``raw_sum``: what the formula sums to as the paper prints it, a value a point; None where it is a law already.
    """

    label: str
    each: tuple[Emission, ...]
    mass: float
    tv: float
    overshoot_kept: float
    raw_sum: Vector | None


def table1(p: Numbers, q: Numbers, grid: Sequence[float]) -> tuple[AblationRow, ...]:
    """Lossless, CoS, lenience and lenience's two mechanisms on CoS (paper Table 1)."""
    return (
        _row("Lossless", p, q, ["lossless"]),
        _row("CoS, mixture", p, q, [f"cos_we:{round(1.0 - value, 9)!r}" for value in grid]),
        _row("Adaptive interpolation", p, q, [f"adaptive_interpolation:{value!r}" for value in grid],
             [adaptive_raw_sum(p, q, value) for value in grid]),
        _row("Overshoot ceiling", p, q, [f"overshoot_ceiling:{value!r}" for value in grid],
             [ceiling_raw_sum(p, q, value) for value in grid]),
        _row("Lenience", p, q, [f"lenience:{value!r}" for value in grid]),
    )  # fmt: skip


def table6(p: Numbers, q: Numbers, grid: Sequence[float], p_base: float = 0.5) -> tuple[AblationRow, ...]:
    """Lossless, SpecCascade, lenience and the hybrid (paper Table 6: p_base .5, averaged over ℓ)."""
    return (
        _row("Lossless", p, q, ["lossless"]),
        _row("SpecCascade", p, q, [f"spec_cascade:{p_base!r},redraw=draft_in_set"]),
        _row("Lenience", p, q, [f"lenience:{value!r}" for value in grid]),
        _row("Min-p with ceiling", p, q, [f"min_p_ceiling:{p_base!r},ell={value!r}" for value in grid]),
    )


def adaptive_raw_sum(p: Numbers, q: Numbers, lam: float) -> float:
    """Σ of the adaptive interpolation as printed in paper §4, before it is renormalised; 1 where p = q."""
    target, draft = pair(p, q)
    pull = delta(target, draft, lam)
    if pull is None:
        return 1.0
    mixture = lam * target + (1.0 - lam) * draft
    return float(torch.where(draft <= target, draft + pull * (target - draft), mixture).sum())


def ceiling_raw_sum(p: Numbers, q: Numbers, lam: float) -> float:
    """Σ of the overshoot ceiling as printed in paper §4, before it is renormalised."""
    target, draft = pair(p, q)
    return float(torch.where(draft <= target / lam, lam * target + (1.0 - lam) * draft, target / lam).sum())


def ceiling_rule_is_lenience(p: Numbers, q: Numbers, ell: float) -> float:
    """Largest difference between lenience's law (Eq. 10) and that of accept min(q, p/ℓ)/q, redraw
    norm (p − min(q, p/ℓ))₊.

    It is 0: coded so, Table 6's ceiling without a set *is* lenience (rules.md §1).
    """
    target, draft = pair(p, q)
    kept = torch.minimum(draft, target / ell)
    left = (target - kept).clamp_min(0.0)
    redrawn = left / left.sum() if float(left.sum()) > 0.0 else target
    law = kept + (1.0 - kept.sum()) * redrawn
    return float((law - lenience_law(target, draft, ell)).abs().max())


def _row(
    label: str, p: Numbers, q: Numbers, texts: Sequence[str], raw_sum: Sequence[float] | None = None
) -> AblationRow:
    target, draft = pair(p, q)
    each = tuple(emission(text, target, draft) for text in texts)
    over = [float((torch.tensor(one.induced, dtype=torch.float64) - target).clamp_min(0.0)[draft > target].sum())
            for one in each]  # fmt: skip
    return AblationRow(
        label=label,
        each=each,
        mass=fmean(one.mass for one in each),
        tv=fmean(one.tv for one in each),
        overshoot_kept=fmean(over),
        raw_sum=None if raw_sum is None else tuple(raw_sum),
    )
