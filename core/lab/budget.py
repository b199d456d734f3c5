"""The article's cost budget: expected tokens a round, cycle time, speed-up. Plain numbers, no torch.

The assumptions are those of the article's section "A good draft must also be cheap": every position is accepted
independently with the same probability α, nothing stops early, and stages do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from core.errors import BadInput

MAX_GAMMA = 1000


@dataclass(frozen=True, slots=True)
class Budget:
    """One drafter at one target. Times in milliseconds: ``draft_ms`` per drafted token, ``verify_ms`` and
    ``state_ms`` per round, ``baseline_ms`` per token of plain decoding.

    Raises:
        BadInput: α outside [0, 1], γ negative or above :data:`MAX_GAMMA`, a time negative or not finite.
    """

    alpha: float
    gamma: int
    draft_ms: float
    verify_ms: float
    state_ms: float
    baseline_ms: float

    def __post_init__(self) -> None:
        expected_tokens(self.alpha, self.gamma)
        for name in ("draft_ms", "verify_ms", "state_ms", "baseline_ms"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0.0:
                raise BadInput(f"{name.removesuffix('_ms')} takes {value} ms: a time is 0 or more.")
        if self.baseline_ms == 0.0 or self.cycle_ms == 0.0:
            raise BadInput("Plain decoding and a cycle take more than 0 ms: else there is nothing to speed up.")

    @property
    def tokens(self) -> float:
        """E[N], committed tokens a round, the correction or bonus included."""
        return expected_tokens(self.alpha, self.gamma)

    @property
    def cycle_ms(self) -> float:
        """γ·draft + verify + state."""
        return self.gamma * self.draft_ms + self.verify_ms + self.state_ms

    @property
    def ms_per_token(self) -> float:
        """Cycle over E[N]."""
        return self.cycle_ms / self.tokens

    @property
    def speed_up(self) -> float:
        """Baseline over time per token."""
        return self.baseline_ms / self.ms_per_token

    @property
    def break_even_ms(self) -> float | None:
        """Draft cost a token at which the speed-up is 1; negative: it never pays; None without candidates (γ = 0)."""
        if self.gamma == 0:
            return None
        return (self.baseline_ms * self.tokens - self.verify_ms - self.state_ms) / self.gamma


def expected_tokens(alpha: float, gamma: int) -> float:
    """E[N] = 1 + α + … + α^γ tokens a round. Raises BadInput for α outside [0, 1] or γ outside 0…MAX_GAMMA."""
    if not 0.0 <= alpha <= 1.0:  # NaN too
        raise BadInput(f"α is {alpha}: an acceptance probability lies between 0 and 1.")
    if not 0 <= gamma <= MAX_GAMMA:
        raise BadInput(f"γ is {gamma}: a round drafts 0 to {MAX_GAMMA} candidates.")
    return float(sum(alpha**j for j in range(gamma + 1)))


def along_cost(budget: Budget, most_ms: float, points: int = 61) -> tuple[tuple[float, float], ...]:
    """(draft cost in ms, speed-up) from 0 to ``most_ms`` with everything else as in ``budget``. Costs at which a cycle
    would take no time at all are left out."""
    costs = [most_ms * place / (points - 1) for place in range(points)]
    fixed = budget.verify_ms + budget.state_ms
    return tuple((cost, replace(budget, draft_ms=cost).speed_up) for cost in costs if budget.gamma * cost + fixed > 0.0)


def verdict(first: Budget, second: Budget) -> str:
    """Which of two drafters is the better one, and why, in a sentence."""
    if abs(first.speed_up - second.speed_up) < 5e-4:
        return "Both drafters are equally fast."
    slow, fast, which = (first, second, "second") if second.speed_up > first.speed_up else (second, first, "first")
    other = "first" if which == "second" else "second"
    if slow.tokens > fast.tokens:
        why = f"The {other} commits more tokens a round, {slow.tokens:.4f} against {fast.tokens:.4f}, but each cycle"
        why += f" takes {slow.cycle_ms:g} ms instead of {fast.cycle_ms:g}:"
    else:
        why = f"The {which} commits {fast.tokens:.4f} tokens a round against {slow.tokens:.4f}, in cycles of"
        why += f" {fast.cycle_ms:g} ms against {slow.cycle_ms:g}:"
    return f"{why} the {which} is faster, {fast.speed_up:.3f} × against {slow.speed_up:.3f} ×."
