"""Links to what the rule lab shows: ``?preset=article``, ``?p=.5,.3,.2&q=.6,.1,.3``, or ``?run=…&round=3&at=-1`` for a
stored position, with optional ``rule`` and ``tab``. Links are user input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import BadInput
from core.lab.vocabularies import MAX_TOKENS, PRESETS, LabPair, lab_pair, names
from core.records import ROOT
from pages.ui.kit.runs import valid_id

MAX_DIGITS = 30


@dataclass(frozen=True, slots=True)
class Stored:
    """A position of a stored round: after node ``at`` (ROOT: after the committed prefix)."""

    run_id: str
    round: int
    at: int


def read(query: Mapping[str, str]) -> str | LabPair | Stored | None:
    """A preset's name, a pair, a stored position, or None if the link names nothing.

    Raises BadInput, with a sentence, for a value that can't be read.
    """
    if "run" in query:
        run_id = valid_id(query["run"])
        if run_id is None:
            raise BadInput("The link names no run: choose one below.")
        return Stored(run_id, _whole(query.get("round", "0")), _whole(query.get("at", str(ROOT))))
    if "p" in query or "q" in query:
        p, q = _numbers("p", query.get("p", "")), _numbers("q", query.get("q", ""))
        if len(p) != len(q):
            raise BadInput(f"The link has {len(p)} values of p and {len(q)} of q: both are over the same tokens.")
        if not 2 <= len(p) <= MAX_TOKENS:
            raise BadInput(f"The link has {len(p)} tokens: the lab takes 2 to {MAX_TOKENS}.")
        return lab_pair(names(len(p)), p, q)
    if "preset" in query:
        if query["preset"] not in PRESETS:
            raise BadInput(f"The link's preset is not known: choose one of {', '.join(PRESETS)}.")
        return query["preset"]
    return None


def query(shown: str | LabPair | Stored) -> dict[str, str]:
    """The parameters that :func:`read` reads back; a pair loses its tokens' names."""
    match shown:
        case str():
            return {"preset": shown}
        case Stored(run_id, number, at):
            return {"run": run_id, "round": str(number), "at": str(at)}
        case LabPair(raw_p=p, raw_q=q):
            return {"p": ",".join(map(_short, p)), "q": ",".join(map(_short, q))}


def numbers_of(text: str, name: str) -> tuple[float, ...]:
    """Numbers typed by a person, separated by commas or spaces. Raises BadInput naming the first that is no number."""
    return _numbers(name, text.replace(" ", ",") if "," not in text else text)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    parts: Sequence[str] = [part.strip() for part in text.split(",") if part.strip()]
    found = []
    for part in parts[: MAX_TOKENS + 1]:
        try:
            found.append(float(part[:MAX_DIGITS]))
        except ValueError:
            raise BadInput(f"{part[:MAX_DIGITS]!r} in {name} is not a number.") from None
    return tuple(found)


def _whole(text: str) -> int:
    try:
        return int(text[:9])
    except ValueError:
        raise BadInput(f"{text[:MAX_DIGITS]!r} in the link is not a whole number.") from None


def _short(value: float) -> str:
    return f"{value:.10g}"
