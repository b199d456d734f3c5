"""Probability vectors [V]: normalising them, and drawing from them. V = vocabulary.

A distribution is a :class:`Law` with its vector, or :class:`Certain` of one token, which saves greedy decoding and
deterministic candidates a one-hot vector of 50,000 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Certain:
    """All probability on one ``token``."""

    token: int

    def vector(self, vocab: int, device: torch.device) -> Tensor:
        """The one-hot vector [V]."""
        return one_hot(self.token, vocab, device)

    def of(self, token: int) -> float:
        """Probability of ``token``."""
        return float(token == self.token)


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution given by its ``probabilities`` [V]."""

    probabilities: Tensor

    def vector(self, vocab: int, device: torch.device) -> Tensor:
        """The probabilities [V] themselves, on their own device."""
        return self.probabilities

    def of(self, token: int) -> float:
        """Probability of ``token``; the host waits for the device."""
        return float(self.probabilities[token])


Distribution = Certain | Law
"""What a token is drawn from."""


def normalised(mass: Tensor) -> Tensor:
    """``mass`` [V] scaled to sum to 1; the caller ensures that the sum is positive."""
    return mass / mass.sum()


def norm_or(mass: Tensor, otherwise: Tensor) -> Tensor:
    """``mass`` [V] scaled to sum to 1, or ``otherwise`` [V] where all of it is zero."""
    return normalised(mass) if float(mass.sum()) > 0.0 else otherwise


def without(distribution: Tensor, token: int) -> Tensor:
    """``distribution`` [V] with ``token`` zeroed, renormalised; unchanged if no other token has mass."""
    left = distribution.clone()
    left[token] = 0.0
    return norm_or(left, distribution)


def one_hot(token: int | Tensor, vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """The distribution [V] of a deterministic choice; a token that is a tensor (int64 []) stays on its device."""
    row = torch.zeros(vocab, device=device)
    if isinstance(token, Tensor):
        return row.scatter_(0, token[None], 1.0)
    row[token] = 1.0
    return row


def draw(distribution: Tensor, u: float) -> int:
    """:func:`drawn`, read by the host."""
    return int(drawn(distribution, u))


def drawn(distribution: Tensor, u: float) -> Tensor:
    """The token (int64 []) at which the cumulative sum of ``distribution`` [V] passes u ∈ [0, 1), on its device.

    Never a token of probability 0: if u·total rounds up to the total, it is the token at which the sum reaches the
    total. Sums are in float64: in float32 the last of 50,000 tokens would move by more than a coin's resolution.
    """
    cumulative = torch.cumsum(distribution.double(), dim=-1)
    total = cumulative[-1]
    passing = torch.searchsorted(cumulative, u * total, right=True)
    return torch.minimum(passing, torch.searchsorted(cumulative, total)).clamp_max_(len(distribution) - 1)
