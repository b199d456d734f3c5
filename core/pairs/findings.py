"""The result of a pair's check, and the lines by which the checking process reports it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from core.pairs.description import Description


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """An id that is one token in the target and another in the draft."""

    id: int
    target: str
    draft: str


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """One model of the pair. ``here``: complete on this machine, else ``missing`` is a sentence; ``attention``: what
    its layers attend to; ``refused``: a sentence when it can't decode here, else ""."""

    name: str
    here: bool
    missing: str
    description: Description | None
    attention: str
    refused: str


@dataclass(frozen=True, slots=True)
class VocabularyFinding:
    """The comparison of two vocabularies: of ``ids`` compared ids, ``differing`` are different tokens, beginning with
    ``first``. ``problem``: the sentence with which the pair is refused, or ""."""

    ids: int
    differing: int
    first: tuple[TokenDifference, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for a pair. ``problem``: a sentence when its name can't be read, and then nothing else is known;
    ``vocabulary``: None for a single model and when a tokenizer can't be read."""

    name: str
    models: tuple[ModelFinding, ...]
    vocabulary: VocabularyFinding | None
    problem: str

    @property
    def problems(self) -> list[str]:
        """Sentences that say why the pair can't be loaded, whatever is downloaded."""
        found = [self.problem, *(model.refused for model in self.models)]
        return [*filter(None, [*found, self.vocabulary.problem if self.vocabulary else ""])]

    @property
    def absent(self) -> list[str]:
        """Sentences that say what is not on this machine."""
        return [model.missing for model in self.models if model.missing]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """One report of a running check: its progress (``share`` in [0, 1]) or its finding."""

    message: str = ""
    share: float = 1.0
    finding: Finding | None = None

    def to_line(self) -> str:
        """The report as one line of JSON."""
        return _REPORT.dump_json(self).decode() + "\n"

    @staticmethod
    def from_line(line: str) -> CheckReport:
        """Reads a report back. Raises ValueError for any other line."""
        return _REPORT.validate_json(line)


_REPORT: TypeAdapter[CheckReport] = TypeAdapter(CheckReport)
