"""Matching of runs for like-for-like comparison, and the plain run that a speed-up needs (design.md "Fingerprint")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from core.records import UNKNOWN, Fingerprint, RunStatus, Summary
from core.results.metrics import speed_up
from core.types import AllowedSet, Lossless, NoDrafter, NoShape, Request, RunSpec, Sampling, TruncationSpec

UNDER_TEST = frozenset({"draft", "draft_hash", "drafting", "sampling", "rule"})
"""Fields in which a run may differ from its plain counterpart: they determine how candidates are made, not the
output's law. ``sampling`` is compared through the reference law, which includes it."""

RECORDED_LATER = frozenset({"prompt_ids_hash", "end_tokens", "batch"})
"""Fields that runs stored before schema 0005 don't have: such a run is matched with no later one."""

TARGET_FIELDS = frozenset({"target", "target_hash", "precision", "cache_policy"})
"""Fields that identify the target: quantising it or approximating its cache makes it another target (article)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Field in which two fingerprints differ, or that one of them was stored without."""

    field: str
    a: str
    b: str

    @property
    def unknown(self) -> bool:
        """Whether a run was stored without the field, by an earlier version."""
        return self.field in RECORDED_LATER and UNKNOWN in (self.a, self.b)


def differences(a: Fingerprint, b: Fingerprint) -> list[Difference]:
    """Every field that differs, those under test included. A field that one run was stored without differs."""
    left, right = _values(a), _values(b)
    return [Difference(name, str(left[name]), str(right[name])) for name in left if left[name] != right[name]]


def _values(one: Fingerprint) -> dict[str, Any]:
    return asdict(one) | ({"batch": UNKNOWN} if one.batch is None else {})


@dataclass(frozen=True, slots=True)
class Relation:
    """Relation of a run to its baseline. ``tested``: differences in what is under test; ``confounding``: all others."""

    tested: tuple[Difference, ...]
    confounding: tuple[Difference, ...]

    @property
    def matched(self) -> bool:
        """Whether only what is under test differs."""
        return not self.confounding

    @property
    def other_target(self) -> bool:
        """Whether the two runs decoded different targets."""
        return any(difference.field in TARGET_FIELDS for difference in self.confounding)


def relation(base: Fingerprint, run: Fingerprint) -> Relation:
    """Differences between ``base`` and ``run``, with library versions one by one. A difference in sampling is under
    test only if the reference law is the same (a truncation rule and its baseline)."""
    found = [part for difference in differences(base, run) for part in _parts(difference, base, run)]
    allowed = UNDER_TEST if base.reference_law == run.reference_law else UNDER_TEST - {"sampling"}
    tested = [difference for difference in found if difference.field in allowed]
    return Relation(tuple(tested), tuple(difference for difference in found if difference.field not in allowed))


def _parts(difference: Difference, base: Fingerprint, run: Fingerprint) -> list[Difference]:
    if difference.field != "versions":
        return [difference]
    names = sorted(base.versions.keys() | run.versions.keys())
    pairs = [(name, base.versions.get(name, "none"), run.versions.get(name, "none")) for name in names]
    return [Difference(f"versions.{name}", old, new) for name, old, new in pairs if old != new]


Word = Literal["matched", "budget", "candidates", "differs"]
"""What a comparison is, in one word: like with like; other verification budgets; samples against the draft's best
tokens; or settings that are not under test differ."""


def word(found: Relation, base: Request, run: Request) -> Word:
    """The word for two runs (article, "Compare matched workload"). Plain decoding verifies no candidates, so any draft
    may be compared with it."""
    if not found.matched:
        return "differs"
    if isinstance(base.drafter, NoDrafter) or isinstance(run.drafter, NoDrafter):
        return "matched"
    if base.shape.drafted != run.shape.drafted:
        return "budget"
    return "matched" if base.samples_candidates == run.samples_candidates else "candidates"


def matched(a: Fingerprint, b: Fingerprint) -> bool:
    """Whether only what is under test differs."""
    return relation(a, b).matched


class Outcome(Protocol):
    """Parts of a run that a measured speed-up needs."""

    @property
    def spec(self) -> RunSpec: ...
    @property
    def session(self) -> str: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def fingerprint(self) -> Fingerprint | None: ...
    @property
    def summary(self) -> Summary | None: ...


def has_speed_up(run: Outcome) -> bool:
    """Whether ``run`` can have a measured speed-up at all: it drafts, is done, and has fingerprint and summary."""
    drafts = not isinstance(run.spec.request.drafter, NoDrafter)
    return drafts and run.status == "done" and run.fingerprint is not None and run.summary is not None


def measured_speed_up(run: Outcome, others: Iterable[Outcome]) -> float | None:
    """The speed-up of ``run`` (×) against the first of ``others`` that is a matched plain run, done in the same session
    (seconds of two sessions are not compared); None without such a run."""
    if not has_speed_up(run) or run.fingerprint is None or run.summary is None:
        return None
    for other in others:
        plain = isinstance(other.spec.request.drafter, NoDrafter) and other.status == "done"
        if not plain or other.session != run.session or other.fingerprint is None or other.summary is None:
            continue
        if matched(run.fingerprint, other.fingerprint):
            return speed_up(run.summary, other.summary)
    return None


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

    The rule forms its set on the finished p, so in general that set is added after all others. If a setting of the
    library has the same effect, that setting is used: min-p commutes with top-k, top-p and itself, but not with ε and
    η, which the library applies later; η is applied last, so the rule's η can be that setting if the request has none.
    Greedy decoding has one token in every set, so its sampling is unchanged.
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
