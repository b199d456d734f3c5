"""The table of rules.md for any p and q: what each rule accepts, redraws and emits, and how far that is from p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from core.decoding.distortion import distance
from core.errors import BadInput
from core.grammar import format_rule, parse_rule
from core.rules.table import acceptance_mass, induced, token_rule
from core.types import RuleSpec

TABLE: tuple[str, ...] = (
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

SUM_TOLERANCE = 1e-6
"""How far from 1 a distribution's sum may be: what typing six decimals leaves."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule at one sampled candidate: ``accept``, ``residual`` and ``induced`` per token, ``acceptance_mass`` Σ q·a;
    ``tv`` and ``kl`` (nats) of the induced law against p. ``kl`` is None where the law leaves p's support, and
    ``escaped_mass`` is how much of it does."""

    rule: str
    accept: tuple[float, ...]
    acceptance_mass: float
    residual: tuple[float, ...]
    induced: tuple[float, ...]
    tv: float
    kl: float | None
    escaped_mass: float

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def rule_row(spec: RuleSpec, p: Sequence[float], q: Sequence[float]) -> RuleRow:
    """The row of one rule. Raises BadInput where p or q is no distribution over the same tokens."""
    p_row, q_row = _rows(p, q)
    rule = token_rule(spec)
    law = induced(rule, p_row, q_row)
    kl, tv, escaped = distance(law, p_row)
    return RuleRow(
        rule=format_rule(spec),
        accept=tuple(rule.accept(p_row, q_row).tolist()),
        acceptance_mass=acceptance_mass(rule, p_row, q_row),
        residual=tuple(rule.residual(p_row, q_row).tolist()),
        induced=tuple(law.tolist()),
        tv=tv,
        kl=kl,
        escaped_mass=escaped,
    )


def rule_rows(p: Sequence[float], q: Sequence[float], rules: Sequence[RuleSpec] = ()) -> list[RuleRow]:
    """The rows of ``rules``, of :data:`TABLE` where there are none."""
    return [rule_row(spec, p, q) for spec in rules or map(parse_rule, TABLE)]


def parse_distribution(text: str, name: str) -> tuple[float, ...]:
    """Probabilities separated by commas. Raises BadInput with a sentence that names ``name``."""
    values = []
    for part in text.split(","):
        try:
            values.append(float(part))
        except ValueError:
            raise BadInput(f"{name} is {text!r}: {part.strip()!r} is not a number, write it as .5,.3,.2.") from None
    _check(values, name)
    return tuple(values)


def _rows(p: Sequence[float], q: Sequence[float]) -> tuple[Tensor, Tensor]:
    _check(p, "p")
    _check(q, "q")
    if len(p) != len(q):
        raise BadInput(f"p has {len(p)} tokens and q has {len(q)}: give both over the same tokens.")
    p_row, q_row = (torch.tensor(tuple(row), dtype=torch.float64) for row in (p, q))
    return p_row / p_row.sum(), q_row / q_row.sum()


def _check(values: Sequence[float], name: str) -> None:
    for place, value in enumerate(values, start=1):
        if not 0.0 <= value <= 1.0 + SUM_TOLERANCE:
            raise BadInput(f"{name} has {value:g} at token {place}: a probability lies between 0 and 1.")
    total = math.fsum(values)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise BadInput(f"{name} sums to {total:.9g}: probabilities sum to 1.")
