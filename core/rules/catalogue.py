"""The one catalogue of verification rules. No torch.

Each rule has a *specification* (the frozen class a request carries, with the ranges and defaults of its parameters) and
an *entry* (its label, formulas, source, form fields, and the class of core/rules that verifies with it). The grammar,
the Live form, the rule lab, the command line and the README's table all read the entries. A further rule is a
specification and an entry here, a token rule in a module of this folder, and its tests.

p is the target, q the draft, A an allowed set, H the entropy of p in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, cast

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field, model_validator

from core.spec import Spec

# -- specifications -------------------------------------------------------------------------------------------------

Redraw = Literal["target", "target_in_set", "draft_in_set"]
"""What a position that a truncation rule rejects is drawn from: p (the authors' code), norm (p·1_A) (paper App. H.1) or
norm (q·1_A) (paper Eq. 12-13)."""


class Lossless(Spec):
    """Accept min(1, p/q), redraw from norm (p−q)₊ (article; paper Eq. 1)."""

    kind: Literal["lossless"] = "lossless"


class Block(Spec):
    """Block verification: a whole chain judged at once, lossless (Sun et al. 2024; rules.md §2). Chains only."""

    kind: Literal["block"] = "block"


class Lenience(Spec):
    """Accept min(1, p/(ℓq)), redraw from norm (p−q)₊ with q unscaled (paper Eq. 9)."""

    kind: Literal["lenience"] = "lenience"
    ell: float = Field(gt=0.0, le=1.0)


class CosWE(Spec):
    """Toward r* = (1−w)p + wq, w the *draft's* weight (paper Eq. 2, 7-8, whose λ is 1 − w)."""

    kind: Literal["cos_we"] = "cos_we"
    draft_weight: float = Field(ge=0.0, le=1.0)


class CosCD(Spec):
    """Toward r* = norm (p/q^μ) (paper Eq. 3, contrastive decoding)."""

    kind: Literal["cos_cd"] = "cos_cd"
    mu: float = Field(ge=0.0, le=100.0)


class AdaptiveInterpolation(Spec):
    """Ablation of paper §4: lenience's Δ where the draft underestimates, CoS's mixture elsewhere; renormalised."""

    kind: Literal["adaptive_interpolation"] = "adaptive_interpolation"
    lam: float = Field(gt=0.0, le=1.0)


class OvershootCeiling(Spec):
    """Ablation of paper §4: CoS's mixture, cut at p/λ; renormalised."""

    kind: Literal["overshoot_ceiling"] = "overshoot_ceiling"
    lam: float = Field(gt=0.0, le=1.0)


class MinPCeiling(Spec):
    """The paper's hybrid (Table 6): q itself inside the min-p set, lenience's ceiling min(q, p/ℓ) outside."""

    kind: Literal["min_p_ceiling"] = "min_p_ceiling"
    p_base: float = Field(gt=0.0, le=1.0)
    ell: float = Field(gt=0.0, le=1.0)


class AllowedSet(Spec):
    """An allowed set A of tokens, from truncations applied one after the other in the library's order: top-k, top-p,
    min-p, ε, η, each to what the ones before left, renormalised. 0 (top-p: 1) is off."""

    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    epsilon: float = Field(default=0.0, ge=0.0, lt=1.0)
    eta: float = Field(default=0.0, ge=0.0, le=1.0, description="η-sampling's ε")
    delta: float | None = Field(default=None, gt=0.0, le=1.0, description="η-sampling's δ; None stands for √η")

    @model_validator(mode="after")
    def _delta_has_its_set(self) -> AllowedSet:
        if self.delta is not None and not self.eta:
            raise ValueError(f"delta={self.delta:g} belongs to η-sampling: give eta as well")
        return self

    @property
    def entropy_factor(self) -> float:
        """η-sampling's δ."""
        return math.sqrt(self.eta) if self.delta is None else self.delta

    @property
    def everything(self) -> bool:
        """True when nothing is cut."""
        return AllowedSet(**{name: getattr(self, name) for name in AllowedSet.model_fields}) == AllowedSet()


class SpecCascade(Spec):
    """Accept 1[p ≥ p_base·max p] (paper Eq. 5, 12); a rejected position is drawn as ``redraw`` says (rules.md)."""

    kind: Literal["spec_cascade"] = "spec_cascade"
    p_base: float = Field(gt=0.0, le=1.0)
    redraw: Redraw = "target_in_set"
    recompute: bool = False

    @property
    def allowed(self) -> AllowedSet:
        """The rule's set as one of its own."""
        return AllowedSet(min_p=self.p_base)


class Typical(Spec):
    """Accept 1[p ≥ min(ε, δe^(−H(p)))] (paper Eq. 6, 28; Medusa), or min(1, p/τ) when not ``hard``.

    ``delta`` None stands for √ε. Up to δ = 1 the most probable token is always in the set, since e^(−H) ≤ max p.
    """

    kind: Literal["typical"] = "typical"
    epsilon: float = Field(gt=0.0, le=1.0)
    delta: float | None = Field(default=None, gt=0.0, le=1.0)
    redraw: Redraw = "target_in_set"
    hard: bool = True
    recompute: bool = False

    @property
    def entropy_factor(self) -> float:
        """δ."""
        return math.sqrt(self.epsilon) if self.delta is None else self.delta

    @property
    def allowed(self) -> AllowedSet:
        """The rule's set as one of its own: the η processor's."""
        return AllowedSet(eta=self.epsilon, delta=self.delta)


class Truncation(AllowedSet):
    """Accept 1[x ∈ A] for any allowed set A (paper Definition 1)."""

    kind: Literal["truncation"] = "truncation"
    redraw: Redraw = "target_in_set"
    recompute: bool = False

    @model_validator(mode="after")
    def _cuts_something(self) -> Truncation:
        if self.everything:
            raise ValueError("a truncation rule needs an allowed set: give top_k, top_p, min_p, epsilon or eta")
        return self

    @property
    def allowed(self) -> AllowedSet:
        """The rule's set as one of its own."""
        return AllowedSet(**{name: getattr(self, name) for name in AllowedSet.model_fields})


RuleSpec = Annotated[
    Lossless
    | Block
    | Lenience
    | CosWE
    | CosCD
    | SpecCascade
    | Typical
    | Truncation
    | AdaptiveInterpolation
    | OvershootCeiling
    | MinPCeiling,
    Field(discriminator="kind"),
]

TruncationSpec = SpecCascade | Typical | Truncation
"""Rules that accept inside an allowed set."""

TargetLawSpec = CosWE | CosCD | AdaptiveInterpolation | OvershootCeiling
"""Rules that verify losslessly toward another law r* than p."""


# -- entries --------------------------------------------------------------------------------------------------------

Family = Literal["Lossless", "Collaborative", "Truncation-based", "Ablations of the paper"]
Values = Mapping[str, Any]
"""Values of a form's fields, by :attr:`Parameter.name`."""

THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
ENTROPIES = (0.05, 0.10, 0.15, 0.20, 0.25)
FACTORS = (0.2, 0.4, 0.6, 0.8)
"""The paper's grids of min-p thresholds, of ε, and of ℓ, w and λ (rules.md §4)."""

SWEEP_POINTS = 33


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a rule as a form shows it. Its range and type are the specification's.

    ``field`` is its name in the specification, ``name`` in a form, where several rules may share a field. ``default``
    is what a form starts with; for a parameter that may be None, 0 stands for None. ``grid`` is the paper's;
    ``swept`` is where the rule lab varies it, by default its whole range.
    """

    field: str
    label: str
    default: float | bool | str
    help: str = ""
    symbol: str = ""
    name: str = ""
    step: float = 0.05
    grid: tuple[float, ...] = ()
    swept: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.field)

    @property
    def numeric(self) -> bool:
        """True for a number; the others are a choice or a switch."""
        return not isinstance(self.default, bool | str)


def _no_remark(spec: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """One rule. ``accept``, ``redraws`` and ``emits`` are its formulas in plain characters, ``about`` one sentence.

    ``verifier`` names the token rule as "module:class", so that reading the catalogue loads no torch. ``usage`` is the
    rule as the command line writes it. ``sweeps`` is the field that the rule lab varies, empty for none. ``remark``
    gives what else has to be known of a specification, empty for nothing.
    """

    name: str
    spec: type[Spec]
    verifier: str
    label: str
    family: Family
    usage: str
    about: str
    accept: str
    redraws: str
    emits: str
    source: str
    parameters: tuple[Parameter, ...] = ()
    sweeps: str = ""
    remark: Callable[[Any], str] = field(default=_no_remark, compare=False)

    @property
    def lossless(self) -> bool:
        """True when the output follows the target's law whatever the draft."""
        return self.family == "Lossless"

    @property
    def takes_redraw(self) -> bool:
        """True when a rejected position can be drawn in any of the ways of :data:`Redraw`."""
        return "redraw" in self.spec.model_fields

    @property
    def sweep(self) -> Parameter | None:
        """The parameter that the rule lab varies."""
        return next((one for one in self.parameters if one.field == self.sweeps), None)

    @property
    def defaults(self) -> dict[str, Any]:
        """What a form starts with."""
        return {one.name: one.default for one in self.parameters}

    def make(self, values: Values) -> RuleSpec:
        """The specification that these form values ask for; a value that is not given is the form's default.

        Raises pydantic's ValidationError for a value out of its range.
        """
        given = self.defaults | {name: value for name, value in values.items() if name in self.defaults}
        fields = {one.field: given[one.name] for one in self.parameters}
        return cast(RuleSpec, self.spec(**{name: self._none_for_0(name, value) for name, value in fields.items()}))

    def values(self, spec: Spec) -> dict[str, Any]:
        """The form values that ask for ``spec``: the inverse of :meth:`make`."""
        found = {one.name: getattr(spec, one.field) for one in self.parameters}
        return {name: 0.0 if value is None else value for name, value in found.items()}

    def _none_for_0(self, name: str, value: Any) -> Any:
        return value or None if self.optional(name) else value

    def optional(self, name: str) -> bool:
        """True for a field that may be None."""
        return self.spec.model_fields[name].default is None

    def whole(self, name: str) -> bool:
        """True for a field of whole numbers."""
        return self.spec.model_fields[name].annotation is int

    def swept(self) -> tuple[float, ...]:
        """The values that the rule lab gives its ``sweep``, the paper's among them; empty without one."""
        chosen = self.sweep
        if chosen is None:
            return ()
        low, high = chosen.swept or limits(self.spec, chosen.field)
        even = {round(low + (high - low) * place / (SWEEP_POINTS - 1), 6) for place in range(SWEEP_POINTS)}
        kind = int if self.whole(chosen.field) else float
        return tuple(sorted({kind(value) for value in even | {value for value in chosen.grid if low <= value <= high}}))


HUNDREDTH = 0.01
"""How near a form comes to a limit that is excluded: its numbers have two decimals."""


def limits(spec: type[Spec], name: str) -> tuple[float, float]:
    """Lowest and highest value of a numeric field that a form with two decimals offers."""
    low, high = -math.inf, math.inf
    for limit in spec.model_fields[name].metadata:
        match limit:
            case Ge(ge=float() | int() as bound):
                low = bound
            case Gt(gt=float() | int() as bound):
                low = bound + HUNDREDTH
            case Le(le=float() | int() as bound):
                high = bound
            case Lt(lt=float() | int() as bound):
                high = bound - HUNDREDTH
    return low, high


REDRAWS: dict[str, str] = {
    "target": "p (the authors' code)",
    "target_in_set": "p inside the set (App. H.1)",
    "draft_in_set": "q inside the set (Eq. 12–13)",
}
"""The ways to redraw, as a form names them."""

REDRAW = Parameter(
    "redraw", "Redraw from", "target_in_set",
    "What a rejected position is drawn from. Paper and code disagree, so it is a choice.",
)  # fmt: skip
RECOMPUTE = Parameter(
    "recompute", "Recompute the set after a rejection", False,
    "Off: the set is formed once per position (the paper). On: again on what a rejection left (the authors' code).",
)  # fmt: skip
LAMBDA = Parameter(
    "lam", "Interpolation λ", 0.5, "The target's weight, and the ceiling p/λ.", "λ", grid=FACTORS,
)  # fmt: skip

_AS_CHOSEN = "as chosen"
_IN_SET = "draft_in_set: q_Θ, target_in_set: q on A and the rest from p_Θ, target: the same from p"
_TO_LAW = ("min(1, r*/q)", "norm (r*−q)₊")
_SET = "core.rules.truncation:"
_LAW = "core.rules.target_law:TargetLawRule"


def _paper_lambda(spec: CosWE) -> str:
    weight = spec.draft_weight
    return f"The paper's λ is {1.0 - weight:g} in its Eq. 7-8 and {weight:g} in its tables."


BLOCK = RuleEntry(
    "block", Block, "core.rules.token_rule:BlockRule", "Block verification", "Lossless", "block",
    "Judges a whole chain at once; lossless, and accepts a little more. Chains only.",
    "hᵢ of the whole prefix", "norm (w·p − q)₊", "p", "Sun et al. 2024",
)  # fmt: skip

TRUNCATION = RuleEntry(
    "truncation", Truncation, _SET + "TruncationRule", "Truncation, any set", "Truncation-based",
    "truncation:top_k=K (or top_p, min_p, epsilon, eta[,delta]; several combine)[,redraw=…][,recompute=true]",
    "A candidate passes inside the set you choose.",
    "1[x ∈ A]", _AS_CHOSEN, _IN_SET, "paper Definition 1",
    (
        Parameter("top_k", "Top-k of the set", 0, "0 is off.", "k", "set_top_k", step=1),
        Parameter("top_p", "Top-p of the set", 1.0, "1 is off.", "top-p", "set_top_p"),
        Parameter("min_p", "Min-p of the set", 0.1, "0 is off.", "min-p", "set_min_p"),
        Parameter("epsilon", "ε of the set", 0.0, "0 is off.", "ε", "set_epsilon"),
        Parameter("eta", "η of the set", 0.0, "η-sampling's ε; 0 is off.", "η", "set_eta"),
        Parameter("delta", "δ of η", 0.0, "0 stands for √η.", "δ", "set_delta"),
        REDRAW,
        RECOMPUTE,
    ),
)  # fmt: skip

RULES: tuple[RuleEntry, ...] = (
    RuleEntry(
        "lossless", Lossless, "core.rules.token_rule:LosslessRule", "Lossless", "Lossless", "lossless",
        "Accepts with min(1, p/q): the output follows the target's law.",
        "min(1, p/q)", "norm (p−q)₊", "p", "article; paper Eq. 1",
    ),
    BLOCK,
    RuleEntry(
        "lenience", Lenience, "core.rules.token_rule:LenienceRule", "Lenience", "Collaborative",
        "lenience:ELL (as lenience:0.4)",
        "A ceiling p/ℓ on overshoot; below it the draft passes.",
        "min(1, p/(ℓq))", "norm (p−q)₊, q unscaled", "Δp + (1−Δ)q where q ≤ p, else min(q, p/ℓ)", "paper Eq. 9–11",
        (Parameter("ell", "Lenience ℓ", 0.5, "1 is lossless; the smaller, the more passes.", "ℓ", grid=FACTORS),),
        "ell",
    ),
    RuleEntry(
        "cos_we", CosWE, _LAW, "CoS, weighted ensemble", "Collaborative", "cos_we:DRAFT_WEIGHT",
        "Verifies toward a mixture of p and q, the same everywhere, overshoot included.",
        *_TO_LAW, "r* = (1−w)p + wq", "paper Eq. 2, 7–8",
        (Parameter("draft_weight", "Draft weight w", 0.5, "The paper's λ is 1−w in Eq. 7-8 and w in its tables.", "w",
                   grid=FACTORS),),
        "draft_weight", _paper_lambda,
    ),
    RuleEntry(
        "cos_cd", CosCD, _LAW, "CoS, contrastive", "Collaborative", "cos_cd:MU",
        "Verifies toward p/q^μ, renormalised; a token with q = 0 is left out, since p/q^μ has no value there.",
        *_TO_LAW, "r* = norm(p/q^μ)", "paper Eq. 3",
        (Parameter("mu", "Contrast μ", 0.5, "How strongly the draft is divided out.", "μ", swept=(0.0, 2.0)),),
        "mu",
    ),
    RuleEntry(
        "spec_cascade", SpecCascade, _SET + "TruncationRule", "SpecCascade", "Truncation-based",
        "spec_cascade:P_BASE[,redraw=target|target_in_set|draft_in_set][,recompute=true]",
        "A candidate passes when p ≥ p_base · max p, whatever its q.",
        "1[p ≥ p_base · max p]", _AS_CHOSEN, _IN_SET, "paper Eq. 5, 12–13, 27",
        (Parameter("p_base", "Min-p base p_base", 0.5, "The set: p ≥ p_base · max p.", "p_base", grid=THRESHOLDS),
         REDRAW, RECOMPUTE),
        "p_base",
    ),
    RuleEntry(
        "typical", Typical, _SET + "TypicalRule", "Typical acceptance", "Truncation-based",
        "typical:EPSILON[,delta=D][,redraw=…][,hard=false][,recompute=true]",
        "A candidate passes when p ≥ min(ε, δ·e^(−H)): the threshold falls as the target gets undecided.",
        "1[p ≥ min(ε, δ · e^(−H))]", _AS_CHOSEN, _IN_SET, "paper Eq. 6, 28; Medusa",
        (
            Parameter("epsilon", "Typical ε", 0.3, "The threshold is never above it.", "ε", "typical_epsilon",
                      grid=ENTROPIES),
            Parameter("delta", "Typical δ", 0.0, "0 stands for √ε.", "δ", "typical_delta"),
            Parameter("hard", "All or nothing", True, "Off: accept with min(1, p/τ), as the authors' code."),
            REDRAW,
            RECOMPUTE,
        ),
        "epsilon",
    ),
    TRUNCATION,
    RuleEntry(
        "adaptive_interpolation", AdaptiveInterpolation, _LAW, "Adaptive interpolation", "Ablations of the paper",
        "adaptive_interpolation:LAMBDA",
        "Lenience's Δ without its ceiling.",
        *_TO_LAW, "r* = norm(q + Δ(p−q) where q ≤ p, else λp + (1−λ)q)", "paper §4, Table 1",
        (LAMBDA,), "lam",
    ),
    RuleEntry(
        "overshoot_ceiling", OvershootCeiling, _LAW, "Overshoot ceiling", "Ablations of the paper",
        "overshoot_ceiling:LAMBDA",
        "Lenience's ceiling p/λ on the plain mixture.",
        *_TO_LAW, "r* = norm(λp + (1−λ)q where q ≤ p/λ, else p/λ)", "paper §4, Table 1",
        (LAMBDA,), "lam",
    ),
    RuleEntry(
        "min_p_ceiling", MinPCeiling, "core.rules.token_rule:MinPCeilingRule", "Min-p with ceiling",
        "Ablations of the paper", "min_p_ceiling:P_BASE,ell=ELL",
        "The draft passes inside the min-p set; outside it is cut at p/ℓ.",
        "y/q", "norm (p−y)₊", "y + (1−Σy) · norm (p−y)₊, y = q in the min-p set, else min(q, p/ℓ)",
        "paper Appendix E, Table 6",
        (Parameter("p_base", "Min-p base p_base", 0.5, "The set: p ≥ p_base · max p.", "p_base", grid=THRESHOLDS),
         Parameter("ell", "Ceiling ℓ", 0.5, "Outside the set q is cut at p/ℓ.", "ℓ", grid=FACTORS)),
        "ell",
    ),
)  # fmt: skip
"""Every rule, in the order in which forms and help texts list them."""

_LAB_SETS = (
    replace(
        TRUNCATION, name="top_k", label="Truncation, top-k set", accept="1[x ∈ top-k of p]",
        about="Definition 1 with another allowed set.", sweeps="top_k",
        parameters=(Parameter("top_k", "Top-k set, k", 2, "Size of the allowed set.", "k", step=1, swept=(1, 20)),
                    REDRAW, RECOMPUTE),
    ),
    replace(
        TRUNCATION, name="top_p", label="Truncation, top-p set", accept="1[x ∈ top-p of p]",
        about="Definition 1 with another allowed set.", sweeps="top_p",
        parameters=(Parameter("top_p", "Top-p set, p", 0.8, "Mass of the allowed set.", "top-p", swept=(0.05, 0.99)),
                    REDRAW, RECOMPUTE),
    ),
)  # fmt: skip

LAB_RULES: tuple[RuleEntry, ...] = tuple(
    one for entry in RULES if entry is not BLOCK for one in (_LAB_SETS if entry is TRUNCATION else (entry,))
)
"""The rules that the lab compares: those that judge a position by itself, the general truncation with one set at a
time. Block verification judges a whole chain and has no accept vector at one position."""

DEFAULTS: dict[str, Any] = {"rule": "lossless"} | {
    name: value for entry in RULES for name, value in entry.defaults.items()
}
"""What a form with the fields of every rule starts with."""

BY_NAME: dict[str, RuleEntry] = {entry.name: entry for entry in (*RULES, *_LAB_SETS)}


def entry_of(spec: RuleSpec) -> RuleEntry:
    """The entry of a specification."""
    return BY_NAME[spec.kind]


def is_lossless(spec: RuleSpec) -> bool:
    """True for the rules whose output follows the target's law whatever the draft: no baseline but themselves."""
    return entry_of(spec).lossless


def rule_of(values: Values) -> RuleSpec:
    """The rule that a form asks for; the lossless one where it names none. Raises pydantic's ValidationError."""
    return BY_NAME[values["rule"]].make(values) if values["rule"] in KINDS else Lossless()


def rule_values(spec: RuleSpec) -> dict[str, Any]:
    """The form values that ask for ``spec``."""
    return {"rule": spec.kind} | entry_of(spec).values(spec)


KINDS: tuple[str, ...] = tuple(entry.name for entry in RULES)
"""Names of all rules, as a specification's ``kind`` and the grammar write them."""
