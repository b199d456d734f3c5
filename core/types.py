"""Specifications: sampling, stops, drafters, shapes, requests and pairs, frozen and validated. No torch here.

One class per choice, so that only legal combinations exist. The specifications of rules are in
``core/rules/catalogue.py`` and re-exported here, so that every specification has one place to import from. p is the
target, q the draft.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.rules.catalogue import (
    AdaptiveInterpolation,
    AllowedSet,
    Block,
    CosCD,
    CosWE,
    Lenience,
    Lossless,
    MinPCeiling,
    OvershootCeiling,
    Redraw,
    RuleSpec,
    SpecCascade,
    TargetLawSpec,
    Truncation,
    TruncationSpec,
    Typical,
    is_lossless,
)
from core.spec import Spec, sentence, valid

__all__ = [
    "GREEDY_BELOW",
    "MAX_COUNT",
    "MAX_DRAFT_NODES",
    "AdaptiveInterpolation",
    "AllowedSet",
    "Block",
    "ChainShape",
    "CosCD",
    "CosWE",
    "Device",
    "DrafterSpec",
    "EarlyExitDrafter",
    "Lenience",
    "Lossless",
    "MinPCeiling",
    "NoDrafter",
    "NoShape",
    "OvershootCeiling",
    "PairSpec",
    "Precision",
    "PromptLookupDrafter",
    "Redraw",
    "Request",
    "RuleSpec",
    "RunSpec",
    "Sampling",
    "ShapeSpec",
    "SmallModelDrafter",
    "Spec",
    "SpecCascade",
    "Stops",
    "TargetLawSpec",
    "TreeShape",
    "Truncation",
    "TruncationSpec",
    "Typical",
    "is_lossless",
    "sentence",
    "valid",
]

GREEDY_BELOW = 1e-5
"""Temperature below which decoding is greedy, in draft, verifier and page alike (rules.md §2)."""

MAX_COUNT = 1_000_000
"""Largest number of tokens that any setting allows."""

MAX_STEPS = 64
"""Most draft steps of a tree, which is as deep as it can be."""
MAX_DRAFT_NODES = 256
"""Most candidates that one round may draft."""


# -- sampling -------------------------------------------------------------------------------------------------------


class Sampling(Spec):
    """Settings that turn logits into a distribution (design.md "Sampling"); the defaults leave the softmax unchanged.

    Temperature, top-k, top-p and penalties shape p and q alike; min-p, η, ε and ``allowed`` truncate p only, unless
    ``truncate_draft`` is set (rules.md, head).
    """

    temperature: float = Field(default=1.0, ge=0.0, le=100.0)
    top_k: int = Field(default=0, ge=0, le=MAX_COUNT, description="0 = off")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0, description="0 = off")
    eta: float = Field(default=0.0, ge=0.0, lt=1.0, description="0 = off; η-sampling's ε with δ = √ε")
    epsilon: float = Field(default=0.0, ge=0.0, lt=1.0, description="0 = off; ε-sampling's cutoff")
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=10.0)
    min_new_tokens: int = Field(default=0, ge=0, le=MAX_COUNT)
    truncate_draft: bool = False
    allowed: tuple[AllowedSet, ...] = Field(
        default=(),
        max_length=8,
        description="further allowed sets, each formed on what all before left: a truncation rule's matched baseline",
    )

    @property
    def greedy(self) -> bool:
        """True if the temperature is below :data:`GREEDY_BELOW`."""
        return self.temperature < GREEDY_BELOW


class Stops(Spec):
    """Stops besides the model's end tokens and the end of the context."""

    max_new_tokens: int = Field(default=128, ge=1, le=MAX_COUNT)
    stop_strings: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(default=(), max_length=16)


# -- drafters -------------------------------------------------------------------------------------------------------


class NoDrafter(Spec):
    """Plain decoding: the draft is empty."""

    kind: Literal["none"] = "none"


class SmallModelDrafter(Spec):
    """Drafting with another model of the same vocabulary: the pair's draft."""

    kind: Literal["model"] = "model"


class PromptLookupDrafter(Spec):
    """Drafting by copying what followed the last occurrence of the current n-gram; deterministic, no model."""

    kind: Literal["prompt_lookup"] = "prompt_lookup"
    min_ngram: int = Field(default=1, ge=1, le=64)
    max_ngram: int = Field(default=3, ge=1, le=64)

    @model_validator(mode="after")
    def _ordered(self) -> PromptLookupDrafter:
        if self.min_ngram > self.max_ngram:
            raise ValueError(
                f"prompt lookup's shortest n-gram {self.min_ngram} is longer than its longest {self.max_ngram}"
            )
        return self


class EarlyExitDrafter(Spec):
    """Self-speculation: the target's first ``layers`` layers draft (article, "Self-speculation")."""

    kind: Literal["early_exit"] = "early_exit"
    layers: int = Field(ge=1, le=1000)


DrafterSpec = Annotated[
    NoDrafter | SmallModelDrafter | PromptLookupDrafter | EarlyExitDrafter,
    Field(discriminator="kind"),
]


# -- shapes ---------------------------------------------------------------------------------------------------------


class NoShape(Spec):
    """No candidates: plain decoding."""

    kind: Literal["none"] = "none"

    @property
    def depth(self) -> int:
        """Longest path a round can offer, in tokens."""
        return 0

    @property
    def drafted(self) -> int:
        """Most candidates a round sends to verification, in tokens (the root is not one)."""
        return 0


class ChainShape(Spec):
    """``chain:γ``: one path of γ candidates, sampled from q (greedy at temperature 0)."""

    kind: Literal["chain"] = "chain"
    gamma: int = Field(ge=1, le=MAX_DRAFT_NODES)

    @property
    def depth(self) -> int:
        """Longest path a round can offer, in tokens."""
        return self.gamma

    @property
    def drafted(self) -> int:
        """Most candidates a round sends to verification, in tokens."""
        return self.gamma


class TreeShape(Spec):
    """``s{steps}_k{topk}_d{nodes}`` (SGLang's): deterministic top-k beams; ``nodes`` includes the root.

    Each step expands the ``topk`` best beams; the best ``nodes − 1`` candidates by cumulative score are kept.
    """

    kind: Literal["tree"] = "tree"
    steps: int = Field(ge=1, le=MAX_STEPS)
    topk: int = Field(ge=1, le=64)
    nodes: int = Field(ge=2, le=MAX_DRAFT_NODES + 1)

    @model_validator(mode="after")
    def _reachable(self) -> TreeShape:
        if self.nodes - 1 > self.most:
            raise ValueError(
                f"s{self.steps}_k{self.topk} reaches at most {self.most} candidates, "
                f"so d can be at most {self.most + 1}, not {self.nodes}"
            )
        return self

    @property
    def most(self) -> int:
        """Candidates that the beams reach before the best are chosen."""
        return self.topk + (self.steps - 1) * self.topk * self.topk

    @property
    def depth(self) -> int:
        """Longest path a round can offer, in tokens."""
        return min(self.steps, self.nodes - 1)

    @property
    def drafted(self) -> int:
        """Most candidates a round sends to verification, in tokens."""
        return self.nodes - 1


ShapeSpec = Annotated[NoShape | ChainShape | TreeShape, Field(discriminator="kind")]


# -- requests and runs ----------------------------------------------------------------------------------------------


class Request(Spec):
    """One prompt to decode, with everything that determines its tokens except the weights."""

    prompt: str = Field(max_length=4_000_000)
    chat: bool = Field(
        default=True,
        description="wrap the prompt in the tokenizer's chat template as one user turn",
    )
    sampling: Sampling = Sampling()
    stops: Stops = Stops()
    drafter: DrafterSpec = NoDrafter()
    shape: ShapeSpec = NoShape()
    rule: RuleSpec = Lossless()
    seed: int = Field(default=0, ge=0, lt=2**63)
    measure_distortion: bool = Field(
        default=True, description="record what the rule emits at each tested position against the reference law"
    )

    @property
    def samples_candidates(self) -> bool:
        """True if candidates are drawn from q; False if they are deterministic: the drafter's best, or copied."""
        copied = isinstance(self.drafter, PromptLookupDrafter)
        return isinstance(self.shape, ChainShape) and not copied and not self.sampling.greedy

    @model_validator(mode="after")
    def _legal(self) -> Request:
        if not self.prompt.strip():
            raise ValueError("the prompt is empty: type something to decode")
        if isinstance(self.drafter, NoDrafter) != isinstance(self.shape, NoShape):
            raise ValueError(
                "plain decoding has neither a drafter nor a shape: choose drafter none with shape none, "
                "or name both a drafter and a shape such as chain:4"
            )
        if isinstance(self.drafter, NoDrafter) and not isinstance(self.rule, Lossless):
            raise ValueError("plain decoding verifies nothing, so its rule is lossless")
        if isinstance(self.rule, Block) and isinstance(self.shape, TreeShape) and self.shape.topk > 1:
            raise ValueError(
                f"block verification judges a chain at once, and a tree with topk {self.shape.topk} branches: "
                "choose a chain such as chain:4 or s5_k1_d6, or another rule"
            )
        return self


Precision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
Device = Literal["auto", "cpu", "cuda"]


class PairSpec(Spec):
    """A target (and draft): ``embedded``, a preset's name, or ``TARGET+DRAFT`` of hub names or folders."""

    name: str = Field(default="embedded", min_length=1, max_length=1000)
    precision: Precision = "auto"
    device: Device = "auto"


class RunSpec(Spec):
    """One request on one pair: what ``jobs.submit`` takes, and what is stored with a run."""

    pair: PairSpec = PairSpec()
    request: Request
