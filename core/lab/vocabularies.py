"""Small vocabularies for the rule lab: presets, edited tables, the top tokens of a stored position. No torch.

A pair keeps its values as given beside the normalised ones; rules use only the normalised ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from core.errors import BadInput
from core.records import Position

MAX_TOKENS = 24
"""A stored position has its 20 top tokens and the rest."""

REST = "rest"
SUM_WITHIN = 5e-4
"""How far from 1 the sum of a distribution may be: what rounding to four decimals leaves. Nearer sums are scaled
silently; the table of the lab scales any sum and says so, the command line and the closed forms refuse it."""


@dataclass(frozen=True, slots=True)
class LabPair:
    """Target p and draft q over ``tokens``; ``p``, ``q`` sum to 1, ``raw_p``, ``raw_q`` are what was given."""

    tokens: tuple[str, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    raw_p: tuple[float, ...]
    raw_q: tuple[float, ...]

    @property
    def size(self) -> int:
        """Tokens of the vocabulary."""
        return len(self.tokens)

    @property
    def scaled(self) -> tuple[tuple[str, float], ...]:
        """("p" or "q", sum) of the columns whose values did not sum to 1 as given, rounding aside."""
        sums = (("p", sum(self.raw_p)), ("q", sum(self.raw_q)))
        return tuple((name, total) for name, total in sums if abs(total - 1.0) > SUM_WITHIN)

    @property
    def has_rest(self) -> bool:
        """True when the last token represents all tokens that are not listed."""
        return self.tokens[-1] == REST


@dataclass(frozen=True, slots=True)
class Preset:
    """A pair to begin with; ``about`` is one sentence."""

    name: str
    label: str
    about: str
    tokens: tuple[str, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]


def lab_pair(tokens: Sequence[str], p: Sequence[float], q: Sequence[float]) -> LabPair:
    """The pair of these columns, normalised.

    Raises:
        BadInput: with the column and the token whose value can't be used, or a column without mass.
    """
    if not 2 <= len(tokens) <= MAX_TOKENS or len(p) != len(tokens) or len(q) != len(tokens):
        raise BadInput(f"The lab takes 2 to {MAX_TOKENS} tokens, each with a p and a q: here are {len(tokens)}.")
    return LabPair(tuple(tokens), scaled(p, "p", tokens)[0], scaled(q, "q", tokens)[0], tuple(p), tuple(q))


def of_preset(name: str) -> LabPair:
    """The preset's pair. Raises BadInput for a name that no preset has."""
    if name not in PRESETS:
        raise BadInput(f"{name!r} is no preset: choose one of {', '.join(PRESETS)}.")
    chosen = PRESETS[name]
    return lab_pair(chosen.tokens, chosen.p, chosen.q)


def of_position(position: Position) -> LabPair:
    """The top tokens of a stored position; the mass of all others is kept as :data:`REST`.

    Raises BadInput where nothing was drafted, since such a position has no q.
    """
    if position.q_rest is None or any(token.q is None for token in position.top):
        raise BadInput("Nothing was drafted at this position, so it has no q: choose one that was tested.")
    tokens = distinct([token.text or f"⟨{token.token}⟩" for token in position.top])
    p = [token.p for token in position.top]
    q = [token.q or 0.0 for token in position.top]
    if position.p_rest > 0.0 or position.q_rest > 0.0 or len(tokens) < 2:
        return lab_pair([*tokens, REST], [*p, max(0.0, position.p_rest)], [*q, max(0.0, position.q_rest)])
    return lab_pair(tokens, p, q)


def names(count: int) -> tuple[str, ...]:
    """A, B, C … for ``count`` tokens without names."""
    return tuple(chr(ord("A") + place) for place in range(count))


def scaled(values: Sequence[float], column: str, tokens: Sequence[str] = ()) -> tuple[tuple[float, ...], float]:
    """``values`` scaled to sum to 1, and their sum as given. Errors name ``column`` and the token, by its place where
    ``tokens`` are not named.

    Raises:
        BadInput: no values, one that is not finite or negative, or no mass.
    """
    if not values:
        raise BadInput(f"{column} has no tokens: give one probability a token.")
    for place, value in enumerate(values):
        token = tokens[place] if tokens else f"token {place + 1}"
        if not isfinite(value):
            raise BadInput(f"{column} of {token} is empty or not a number: type a number from 0 up.")
        if value < 0.0:
            raise BadInput(f"{column} of {token} is {value:g}: a probability can't be negative.")
    total = sum(values)
    if total == 0.0:
        raise BadInput(f"{column} is all zero: give at least one token some probability.")
    if not isfinite(total):
        raise BadInput(f"{column} sums to more than a number can hold: type smaller values, only their ratios count.")
    return tuple(value / total for value in values), total


def distribution(values: Sequence[float], column: str) -> tuple[float, ...]:
    """A distribution, scaled to sum to exactly 1.

    Raises:
        BadInput: as :func:`scaled`, or for a sum further than :data:`SUM_WITHIN` from 1.
    """
    found, total = scaled(values, column)
    if abs(total - 1.0) > SUM_WITHIN:
        raise BadInput(f"{column} sums to {total:g}: the probabilities of a distribution sum to 1.")
    return found


def parse_distribution(text: str, column: str) -> tuple[float, ...]:
    """The distribution that is written as probabilities separated by commas. Raises BadInput naming ``column``."""
    values = []
    for part in text.split(","):
        try:
            values.append(float(part))
        except ValueError:
            raise BadInput(f"{column} is {text!r}: {part.strip()!r} is not a number, write it as .5,.3,.2.") from None
    return distribution(values, column)


def distinct(texts: Sequence[str]) -> list[str]:
    """``texts`` made unique by a number, since several ids may have the same text."""
    seen: dict[str, int] = {}
    found = []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        found.append(text if seen[text] == 1 and text != REST else f"{text} ({seen[text]})")
    return found


def _zipf(size: int, power: float, shift: float = 0.0) -> tuple[float, ...]:
    weights = [1.0 / (rank + 1.0 + shift) ** power for rank in range(size)]
    return tuple(round(weight / sum(weights), 4) for weight in weights)


def _preset(name: str, label: str, about: str, p: Sequence[float], q: Sequence[float]) -> Preset:
    return Preset(name, label, about, names(len(p)), tuple(p), tuple(q))


_HEAVY = _zipf(16, 1.05)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        _preset("article", "Article's A, B, C", "The article's three tokens.", (0.5, 0.3, 0.2), (0.6, 0.1, 0.3)),
        _preset(
            "aligned",
            "Aligned",
            "A draft that nearly agrees with the target.",
            (0.42, 0.24, 0.14, 0.09, 0.06, 0.05),
            (0.45, 0.22, 0.15, 0.08, 0.05, 0.05),
        ),
        _preset(
            "overlapping",
            "Partly overlapping",
            "Nearly half of the draft's mass lies where the target has little.",
            (0.38, 0.26, 0.16, 0.10, 0.06, 0.04),
            (0.12, 0.30, 0.05, 0.08, 0.25, 0.20),
        ),
        _preset(
            "unrelated",
            "Unrelated",
            "A draft that is sure of what the target hardly ever emits.",
            (0.45, 0.30, 0.15, 0.06, 0.03, 0.01),
            (0.01, 0.02, 0.05, 0.12, 0.30, 0.50),
        ),
        _preset(
            "peaked",
            "Peaked",
            "Both are nearly sure, the draft less so.",
            (0.93, 0.03, 0.02, 0.01, 0.006, 0.004),
            (0.78, 0.10, 0.05, 0.03, 0.02, 0.02),
        ),
        _preset(
            "flat",
            "Flat",
            "The target is undecided; the draft has a favourite.",
            (0.14, 0.13, 0.13, 0.12, 0.12, 0.12, 0.12, 0.12),
            (0.30, 0.20, 0.14, 0.10, 0.08, 0.07, 0.06, 0.05),
        ),
        _preset(
            "heavy_tailed",
            "Heavy-tailed",
            "Sixteen tokens of a Zipf law; the draft swaps neighbours and is steeper.",
            _HEAVY,
            tuple(value for left, right in zip(_zipf(16, 1.4)[0::2], _zipf(16, 1.4)[1::2], strict=True)
                  for value in (right, left)),
        ),
    )
}  # fmt: skip
"""By name; the article's comes first."""
