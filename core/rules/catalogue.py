"""The rule lab's catalogue: every token rule, its parameter, where that ranges, and what it says. No torch.

``block`` stands apart: it judges a whole chain and has no accept vector at one position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.rule_grammar import format_rule
from core.types import (
    AdaptiveInterpolation,
    Block,
    CosCD,
    CosWE,
    Lenience,
    Lossless,
    MinPCeiling,
    OvershootCeiling,
    RuleSpec,
    SpecCascade,
    Truncation,
    Typical,
    valid,
)

Family = Literal["Lossless", "Collaborative", "Truncation-based", "Ablations of the paper"]

THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
ENTROPIES = (0.05, 0.10, 0.15, 0.20, 0.25)
FACTORS = (0.2, 0.4, 0.6, 0.8)
SWEEP_POINTS = 33


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a rule. ``grid`` is the paper's (rules.md §4); ``low`` and ``high`` are where the lab sweeps it."""

    key: str
    symbol: str
    label: str
    low: float
    high: float
    default: float
    step: float
    about: str
    grid: tuple[float, ...] = ()

    @property
    def sweep(self) -> tuple[float, ...]:
        """The values that are swept, the paper's among them."""
        span = self.high - self.low
        even = {round(self.low + span * place / (SWEEP_POINTS - 1), 6) for place in range(SWEEP_POINTS)}
        return tuple(sorted(even | {value for value in self.grid if self.low <= value <= self.high}))


PARAMETERS: dict[str, Parameter] = {
    parameter.key: parameter
    for parameter in (
        Parameter("ell", "ℓ", "ℓ, lenience", 0.05, 1.0, 0.8, 0.05, "1 is lossless; smaller accepts more.", FACTORS),
        Parameter(
            "draft_weight", "w", "w, draft weight", 0.0, 1.0, 0.5, 0.05,
            "Share of the draft in the mixture. The paper's tables call it λ; its Eq. 7–8 call 1 − w so.", FACTORS,
        ),
        Parameter("mu", "μ", "μ, contrast", 0.0, 2.0, 0.5, 0.05, "How strongly the draft's opinion is divided out."),
        Parameter(
            "p_base", "p_base", "p_base, min-p", 0.02, 1.0, 0.5, 0.05,
            "Tokens with p ≥ p_base · max p are in the allowed set.", THRESHOLDS,
        ),
        Parameter(
            "epsilon", "ε", "ε, typical", 0.01, 0.99, 0.25, 0.05,
            "Tokens with p ≥ min(ε, √ε · e^(−H)) are in the allowed set; H is the entropy of p in nats.", ENTROPIES,
        ),
        Parameter("lam", "λ", "λ, ablations", 0.05, 1.0, 0.5, 0.05, "Target weight of the two ablations.", FACTORS),
        Parameter(
            "hybrid_ell", "ℓ", "ℓ, hybrid", 0.05, 1.0, 0.6, 0.05,
            "The ceiling p/ℓ outside the hybrid's min-p set.", FACTORS,
        ),
        Parameter("top_k", "k", "k, top-k set", 1, 20, 2, 1, "Size of the allowed set of the general truncation rule."),
        Parameter("top_p", "top-p", "top-p set", 0.05, 0.99, 0.8, 0.05, "Mass of the general truncation rule's set."),
    )
}  # fmt: skip

Values = Mapping[str, Any]
"""Parameter values by key, and ``redraw`` and ``hard``."""


@dataclass(frozen=True, slots=True)
class LabRule:
    """One rule of the catalogue. ``accept``, ``redraws`` and ``emits`` are its formulas in plain characters."""

    name: str
    label: str
    family: Family
    parameter: str | None
    accept: str
    redraws: str
    emits: str
    source: str
    make: Callable[[Values], RuleSpec] = field(compare=False)
    about: str = ""

    def text(self, values: Values) -> str:
        """The rule with these values, in the one grammar. Raises BadInput for a value out of its range."""
        return format_rule(valid(lambda: self.make(DEFAULTS | dict(values))))

    def remark(self, values: Values) -> str:
        """What has to be known beside its formulas, at these values; empty when nothing."""
        said = []
        if self.name == "cos_we":
            weight = values["draft_weight"]
            said.append(f"The paper's λ is {1.0 - weight:g} in its Eq. 7-8 and {weight:g} in its tables.")
        if self.redraws == "norm (r*−q)₊":
            said.append("r* needs a draft: a bonus token, after a wholly accepted draft, comes from p.")
        return " ".join(said)

    def swept(self, values: Values) -> tuple[tuple[float, str], ...]:
        """(value, rule text) along its parameter; empty without one."""
        if self.parameter is None:
            return ()
        chosen = PARAMETERS[self.parameter]
        kind = int if chosen.step == 1 else float
        found = sorted({kind(value) for value in chosen.sweep})
        return tuple((value, self.text(dict(values) | {chosen.key: value})) for value in found)


DEFAULTS: dict[str, Any] = {key: parameter.default for key, parameter in PARAMETERS.items()} | {
    "redraw": "draft_in_set",
    "hard": True,
}
"""The paper's Eq. 12–13 redraw first, since that is the law its figures show."""

_IN_SET = "draft_in_set: q_Θ, target_in_set: q on A and the rest from p_Θ, target: the same from p"

RULES: tuple[LabRule, ...] = (
    LabRule(
        "lossless", "Lossless", "Lossless", None, "min(1, p/q)", "norm (p−q)₊", "p", "article; paper Eq. 1",
        lambda v: Lossless(), "The one rule here that changes nothing but speed.",
    ),
    LabRule(
        "lenience", "Lenience", "Collaborative", "ell", "min(1, p/(ℓq))", "norm (p−q)₊, q unscaled",
        "Δp + (1−Δ)q where q ≤ p, else min(q, p/ℓ)", "paper Eq. 9–11", lambda v: Lenience(ell=v["ell"]),
        "A ceiling p/ℓ on overshoot; below it the draft passes.",
    ),
    LabRule(
        "cos_we", "CoS, weighted ensemble", "Collaborative", "draft_weight", "min(1, r*/q)", "norm (r*−q)₊",
        "r* = (1−w)p + wq", "paper Eq. 2, 7–8", lambda v: CosWE(draft_weight=v["draft_weight"]),
        "The same mixture everywhere, overshoot included.",
    ),
    LabRule(
        "cos_cd", "CoS, contrastive", "Collaborative", "mu", "min(1, r*/q)", "norm (r*−q)₊", "r* = norm(p/q^μ)",
        "paper Eq. 3", lambda v: CosCD(mu=v["mu"]),
        "Where q = 0 the token is left out of r*, since p/q^μ has no value there.",
    ),
    LabRule(
        "spec_cascade", "SpecCascade (min-p)", "Truncation-based", "p_base", "1[p ≥ p_base · max p]",
        "as chosen", _IN_SET, "paper Eq. 5, 12–13, 27",
        lambda v: SpecCascade(p_base=v["p_base"], redraw=v["redraw"]),
        "Whatever the draft says inside the set is taken as it is.",
    ),
    LabRule(
        "typical", "Typical acceptance (η)", "Truncation-based", "epsilon", "1[p ≥ min(ε, √ε · e^(−H))]",
        "as chosen", _IN_SET, "paper Eq. 6, 28; Medusa",
        lambda v: Typical(epsilon=v["epsilon"], redraw=v["redraw"], hard=v["hard"]),
        "As SpecCascade, with a threshold that falls as the target gets undecided.",
    ),
    LabRule(
        "top_k", "Truncation, top-k set", "Truncation-based", "top_k", "1[x ∈ top-k of p]", "as chosen", _IN_SET,
        "paper Definition 1", lambda v: Truncation(top_k=int(v["top_k"]), redraw=v["redraw"]),
        "Definition 1 with another allowed set.",
    ),
    LabRule(
        "top_p", "Truncation, top-p set", "Truncation-based", "top_p", "1[x ∈ top-p of p]", "as chosen", _IN_SET,
        "paper Definition 1", lambda v: Truncation(top_p=v["top_p"], redraw=v["redraw"]),
        "Definition 1 with another allowed set.",
    ),
    LabRule(
        "adaptive_interpolation", "Adaptive interpolation", "Ablations of the paper", "lam", "min(1, r*/q)",
        "norm (r*−q)₊", "r* = norm(q + Δ(p−q) where q ≤ p, else λp + (1−λ)q)", "paper §4, Table 1",
        lambda v: AdaptiveInterpolation(lam=v["lam"]), "Lenience's Δ without its ceiling.",
    ),
    LabRule(
        "overshoot_ceiling", "Overshoot ceiling", "Ablations of the paper", "lam", "min(1, r*/q)", "norm (r*−q)₊",
        "r* = norm(λp + (1−λ)q where q ≤ p/λ, else p/λ)", "paper §4, Table 1",
        lambda v: OvershootCeiling(lam=v["lam"]), "Lenience's ceiling on the plain mixture.",
    ),
    LabRule(
        "min_p_ceiling", "Min-p with ceiling", "Ablations of the paper", "hybrid_ell", "y/q", "norm (p−y)₊",
        "y + (1−Σy) · norm (p−y)₊, y = q in the min-p set, else min(q, p/ℓ)", "paper Appendix E, Table 6",
        lambda v: MinPCeiling(p_base=v["p_base"], ell=v["hybrid_ell"]),
        "The draft passes inside the set, the ceiling holds outside it.",
    ),
)  # fmt: skip

BLOCK = LabRule(
    "block", "Block verification", "Lossless", None, "hᵢ of the whole prefix", "norm (w·p − q)₊", "p",
    "Sun et al. 2024", lambda v: Block(), "Lossless, and keeps more: a whole chain is judged at once.",
)  # fmt: skip
"""For chains alone, so only where rounds are drawn."""

BY_NAME: dict[str, LabRule] = {rule.name: rule for rule in RULES}


def parameters_of(rule: LabRule) -> tuple[str, ...]:
    """Keys of the numbers that shape a rule."""
    own = (rule.parameter,) if rule.parameter else ()
    return (*own, "p_base") if rule.name == "min_p_ceiling" else own
