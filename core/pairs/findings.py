"""What a check of a pair found, and the lines in which it travels from the checking process. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from core.pairs.description import Description


@dataclass(frozen=True, slots=True)
class Difference:
    """An id that target and draft read as different tokens."""

    id: int
    target: str
    draft: str


@dataclass(frozen=True, slots=True)
class ModelFinding:
    """One model. ``here``: complete on this machine, else ``missing`` is a sentence; ``attention``: what its layers
    keep; ``refused``: a sentence when it can't decode here, else ""."""

    name: str
    here: bool
    missing: str
    description: Description | None
    attention: str
    refused: str


@dataclass(frozen=True, slots=True)
class VocabularyFinding:
    """``ids`` were compared, ``differing`` of them are different tokens; ``first`` are the first of those. ``problem``:
    the sentence with which the pair is refused, or ""."""

    ids: int
    differing: int
    first: tuple[Difference, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A pair. ``problem``: its name can't be read, and then nothing else is known; ``vocabulary`` is None for a single
    model and when one of the tokenizers can't be read."""

    name: str
    models: tuple[ModelFinding, ...]
    vocabulary: VocabularyFinding | None
    problem: str

    @property
    def problems(self) -> list[str]:
        """Sentences that stand against loading the pair; what is only absent is not among them."""
        found = [self.problem, *(model.refused for model in self.models)]
        return [*filter(None, [*found, self.vocabulary.problem if self.vocabulary else ""])]

    @property
    def absent(self) -> list[str]:
        """Sentences about what is not on this machine."""
        return [model.missing for model in self.models if model.missing]


@dataclass(frozen=True, slots=True)
class Step:
    """One line: how far the check is (``share`` in [0, 1]), or its finding."""

    message: str = ""
    share: float = 1.0
    finding: Finding | None = None

    @staticmethod
    def line(step: Step) -> str:
        """As one line of JSON."""
        return _STEP.dump_json(step).decode() + "\n"

    @staticmethod
    def of(line: str) -> Step:
        """The step in a line; raises ValueError for anything else."""
        return _STEP.validate_json(line)


_STEP: TypeAdapter[Step] = TypeAdapter(Step)
