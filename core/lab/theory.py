"""Closed forms of both seeds at one position, in float64 (rules.md §3). p [V] is the target, q [V] the draft.

Laws come from the rule objects of ``core/rules``; here is what follows from them. Everything takes plain numbers or
tensors and refuses what is no distribution with :class:`BadInput`; a quantity that does not exist is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.decoding.distortion import distance
from core.errors import BadInput
from core.lab import vocabularies
from core.rules import target_law

Numbers = Sequence[float] | NDArray[np.floating] | Tensor


@dataclass(frozen=True, slots=True)
class Gap:
    """How far a law is from a reference. ``kl`` in nats; None where the law leaves the reference's support, and then
    ``escaped`` is how much of it does (metrics.md "distortion")."""

    tv: float
    kl: float | None
    escaped: float


@dataclass(frozen=True, slots=True)
class TruncationEffect:
    """Lemma 1 at one position: what truncating p to A does to the acceptance of a lossless test.

    ``change`` = ``gain`` − ``loss``; ``direct`` is Σ min(p_Θ, q) − Σ min(p, q), which must equal it. ``z`` = p(A).
    """

    gain: float
    loss: float
    change: float
    direct: float
    z: float


@dataclass(frozen=True, slots=True)
class SetAcceptance:
    """Corollary 1 for one candidate set C: how often one of it is accepted."""

    lossless: float
    spec_cascade: float


def pair(p: Numbers, q: Numbers) -> tuple[Tensor, Tensor]:
    """Both as float64 distributions [V] that sum to exactly 1.

    Raises:
        BadInput: for what is no distribution (``vocabularies.distribution``), or for unequal lengths.
    """
    target, draft = _row(p, "p"), _row(q, "q")
    if len(target) != len(draft):
        raise BadInput(f"p has {len(target)} tokens and q has {len(draft)}: give both over the same tokens.")
    return target, draft


def _row(values: Numbers, name: str) -> Tensor:
    plain = torch.as_tensor(values, dtype=torch.float64)
    return torch.tensor(vocabularies.distribution(plain.flatten().tolist(), name), dtype=torch.float64)


def gap(law: Numbers, reference: Numbers) -> Gap:
    """TV(law, reference) and KL(law‖reference) in nats; see :class:`Gap` for what escapes."""
    kl, tv, escaped = distance(*pair(law, reference))
    return Gap(tv, kl, escaped)


def overshoot(p: Numbers, q: Numbers, ell: float = 1.0) -> float:
    """Expected share of tested tokens with q > p/ℓ when they are drawn from q: q{x : q(x) > p(x)/ℓ} (metrics.md)."""
    target, draft = pair(p, q)
    return float(draft[draft > target / _factor(ell, "ℓ")].sum())


# -- lenience (paper §3.1, Appendix A) ------------------------------------------------------------------------------


def delta(p: Numbers, q: Numbers, ell: float) -> float | None:
    """Δ of paper Eq. 11, how strongly p pulls where the draft undershoots; None where p = q (0/0)."""
    target, draft = pair(p, q)
    return target_law.delta(target, draft, _factor(ell, "ℓ"))


def lenience_law(p: Numbers, q: Numbers, ell: float) -> Tensor:
    """The law [V] of paper Eq. 10, from its three cases and not from the rule; p where p = q."""
    target, draft = pair(p, q)
    pull = delta(target, draft, ell)
    if pull is None:
        return target
    under = pull * target + (1.0 - pull) * draft
    return torch.where(draft <= target, under, torch.minimum(draft, target / ell))


# -- truncation: Lemmas 1 and 2, Proposition 1 ----------------------------------------------------------------------


def truncated(p: Numbers, allowed: Tensor, name: str = "p") -> Tensor:
    """p_Θ = norm(p·1_A) (paper Eq. 4). Raises BadInput when ``name`` has no mass on A."""
    inside = _row(p, name) * _mask(allowed, len(p))
    total = float(inside.sum())
    if total <= 0.0:
        raise BadInput(f"{name} has no mass on the allowed set: nothing is left to normalise.")
    return inside / total


def lemma1(p: Numbers, q: Numbers, allowed: Tensor) -> TruncationEffect:
    """Paper Lemma 1 (Eq. 14), corrected: L_trunc is outside the sum, and the third term never binds.

    gain = Σ_A min{(q−p)₊, (1/z − 1) p}, loss = Σ_{not A} min(p, q).
    """
    target, draft = pair(p, q)
    kept = truncated(target, allowed)
    inside = _mask(allowed, len(target))
    z = float((target * inside).sum())
    gain = float((torch.minimum((draft - target).clamp_min(0.0), max(0.0, 1.0 / z - 1.0) * target) * inside).sum())
    loss = float((torch.minimum(target, draft) * (1.0 - inside)).sum())
    direct = float(torch.minimum(kept, draft).sum() - torch.minimum(target, draft).sum())
    return TruncationEffect(gain, loss, gain - loss, direct, z)


def lemma1_as_printed(p: Numbers, q: Numbers, allowed: Tensor) -> float:
    """Eq. 14 to the letter, with L_trunc inside the sum: the loss is counted once per allowed token."""
    found = lemma1(p, q, allowed)
    return found.gain - int(_mask(allowed, len(p)).sum()) * found.loss


def kl_sd(p: Numbers, q: Numbers, allowed: Tensor) -> float | None:
    """KL_SD of paper Lemma 2 in nats: q_Θ against p_Θ; None where q has no mass on A, or some where p has none."""
    target, draft = pair(p, q)
    if float((draft * _mask(allowed, len(draft))).sum()) <= 0.0:
        return None
    return gap(truncated(draft, allowed, "q"), truncated(target, allowed)).kl


def kl_eagle(p: Numbers, allowed: Tensor, token: int) -> float:
    """KL_EAGLE of paper Lemma 2 in nats at one prefix: log(Z_p/p(x)), x the first candidate inside A.

    Raises BadInput when ``token`` is not inside A.
    """
    kept = truncated(p, allowed)
    if not 0 <= token < len(kept) or float(kept[token]) <= 0.0:
        raise BadInput(f"Token {token} is not in the allowed set, so it is never accepted.")
    return -log(float(kept[token]))


def kl_eagle_floor(p: Numbers, allowed: Tensor) -> float:
    """Proposition 1: log(1/max p_Θ), below which KL_EAGLE can't fall for any draft; > 0 when A has two tokens."""
    return -log(float(truncated(p, allowed).max()))


def first_allowed(candidates: Sequence[int], allowed: Tensor) -> int | None:
    """The candidate that SpecCascade accepts: the first inside A, or None (paper Lemma 3 ii)."""
    return next((token for token in candidates if bool(allowed[token])), None)


# -- block efficiency: Corollary 1, Proposition 2 -------------------------------------------------------------------


def corollary1(p: Numbers, allowed: Tensor, candidates: Sequence[int]) -> SetAcceptance:
    """Paper Corollary 1 for deterministic candidates C: p_Θ(C) ≤ 1[C ∩ A ≠ ∅].

    Raises BadInput for a candidate outside the vocabulary or named twice.
    """
    kept = truncated(p, allowed)
    if len(set(candidates)) < len(candidates) or any(not 0 <= token < len(kept) for token in candidates):
        raise BadInput(f"{list(candidates)} is no set of candidates of {len(kept)} tokens.")
    lossless = min(1.0, float(sum(float(kept[token]) for token in candidates)))
    return SetAcceptance(lossless, float(any(float(kept[token]) > 0.0 for token in candidates)))


def block_efficiency(conditional: Sequence[float]) -> float:
    """Proposition 2 (paper Eq. 32): Σ_d Π_{j≤d} Pr[L ≥ j | L ≥ j−1], accepted tokens a round, the bonus excluded."""
    for place, share in enumerate(conditional):
        if not 0.0 <= share <= 1.0:  # NaN too
            raise BadInput(f"The acceptance at position {place + 1} is {share}: it is a share from 0 to 1.")
    return float(sum(prod(conditional[: depth + 1]) for depth in range(len(conditional))))


def _factor(value: float, name: str) -> float:
    if not 0.0 < value <= 1.0:
        raise BadInput(f"{name} is {value}: it lies above 0 and is at most 1.")
    return value


def _mask(allowed: Tensor, size: int) -> Tensor:
    if allowed.shape != (size,):
        raise BadInput(f"The allowed set is over {tuple(allowed.shape)} tokens, the distribution over {size}.")
    return allowed.to(torch.float64)
