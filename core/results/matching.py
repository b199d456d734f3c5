"""Which runs may be compared like with like, and the plain run that a speed-up needs (design.md "Fingerprint")."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from core.records import Fingerprint
from core.results.metrics import speed_up
from core.types import AllowedSet, Lossless, NoDrafter, NoShape, Request, Sampling, TruncationSpec

__all__ = ["Difference", "differences", "matched", "plain_counterpart", "reference_sampling", "speed_up"]

UNDER_TEST = frozenset({"draft", "draft_hash", "drafting", "sampling", "rule"})
"""Fields in which a run may differ from its plain counterpart: they say how candidates are made, not what the output's
law is. ``sampling`` is judged by the reference law, which includes it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of two fingerprints that is not equal."""

    field: str
    a: str
    b: str


def differences(a: Fingerprint, b: Fingerprint) -> list[Difference]:
    """Every field that differs, the thing under test included."""
    left, right = asdict(a), asdict(b)
    return [Difference(name, str(left[name]), str(right[name])) for name in left if left[name] != right[name]]


def matched(a: Fingerprint, b: Fingerprint) -> bool:
    """True when nothing but the thing under test differs."""
    return all(difference.field in UNDER_TEST for difference in differences(a, b))


def plain_counterpart(request: Request) -> Request:
    """The plain run that a speed-up is measured against: same prompt, stops and seed, under the reference law."""
    return request.model_copy(
        update={
            "drafter": NoDrafter(),
            "shape": NoShape(),
            "rule": Lossless(),
            "sampling": reference_sampling(request),
        }
    )


def reference_sampling(request: Request) -> Sampling:
    """Sampling ∪ the rule's allowed set: the law that a lossless run of this request would follow (rules.md §1).

    The rule forms its set on the finished p, so in general it is one more set after all others. Where that is the same
    as a setting of the library's own it is written as that setting: min-p commutes with top-k, top-p and itself, but
    not with ε and η, which the library applies after it; η comes last, so a first one can only be the rule's. Greedy
    decoding has one token in every set.
    """
    sampling = request.sampling
    if not isinstance(request.rule, TruncationSpec) or sampling.greedy:
        return sampling
    added = request.rule.allowed
    if sampling.allowed or added.delta is not None:
        return _with_set(sampling, added)
    if added == AllowedSet(min_p=added.min_p) and not (sampling.epsilon or sampling.eta):
        stricter = max(sampling.min_p, added.min_p)
        if stricter < 1.0:
            return sampling.model_copy(update={"min_p": stricter})
    if added == AllowedSet(eta=added.eta) and not sampling.eta and added.eta < 1.0:
        return sampling.model_copy(update={"eta": added.eta})
    if added == AllowedSet(epsilon=added.epsilon) and not (sampling.epsilon or sampling.eta):
        return sampling.model_copy(update={"epsilon": added.epsilon})
    return _with_set(sampling, added)


def _with_set(sampling: Sampling, added: AllowedSet) -> Sampling:
    return sampling.model_copy(update={"allowed": (*sampling.allowed, added)})
