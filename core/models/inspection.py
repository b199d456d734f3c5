"""Checks whether a pair would run here, without loading a weight: ``python -m core.models.inspection PAIR``.

Runs in a process of its own (core/pairs/checks.py), because the library that knows every architecture takes seconds and
hundreds of MiB to import. Standard output: a JSON line per report of progress, then one with the finding.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from core.errors import SpecLensError
from core.pairs import embedded, folders
from core.pairs.description import Description, describe
from core.pairs.findings import CheckReport, Finding, ModelFinding, VocabularyFinding
from core.pairs.folders import Progress
from core.pairs.presets import split

FIRST_DIFFERENCES = 5


def inspect_pair(name: str, progress: Progress = folders.quiet) -> Finding:
    """Checks the pair ``name`` as far as possible without its weights; problems are part of the finding, not raised."""
    try:
        target, draft = split(name)
    except SpecLensError as error:
        return Finding(name, (), None, str(error))
    progress("importing the library of architectures", 0.05)
    names = [target, draft] if draft else [target]
    looked = []
    for number, model in enumerate(names):
        progress(f"reading configuration and tokenizer of {model}", 0.4 + 0.4 * number / len(names))
        looked.append(_inspect_model(model))
    models = tuple(finding for finding, _ in looked)
    vocabulary = None
    if len(looked) == 2 and all(tokens is not None for _, tokens in looked):
        progress("comparing the vocabularies", 0.9)
        vocabulary = _compare(models, [tokens or {} for _, tokens in looked])
    return Finding(name, models, vocabulary, "")


def _inspect_model(name: str) -> tuple[ModelFinding, Mapping[str, int] | None]:
    """The finding for one model, and its tokenizer's vocabulary where that can be read."""
    here, absent = _locate(name)
    title = embedded.TITLE if name == embedded.NAME else name
    folder = here
    if folder is None and name != embedded.NAME:
        try:
            folder = folders.fetch_description(name)
        except SpecLensError as error:
            return ModelFinding(title, False, str(error), None, "", ""), None
    if folder is None:
        return ModelFinding(title, False, absent, None, "", ""), None
    return _described(title, folder, here is not None, absent)


def _locate(name: str) -> tuple[Path | None, str]:
    """The model's complete folder, or None and the sentence that says what is absent."""
    if name != embedded.NAME:
        return folders.find(name), f"The weights of {name} are not on this machine: they are downloaded when it loads."
    if embedded.is_sound(embedded.folder()):
        return embedded.folder(), ""
    waiting = f"{embedded.TITLE} is converted when it is first loaded (half a minute); it can be checked after that."
    return None, embedded.missing() or waiting


def _described(name: str, folder: Path, here: bool, absent: str) -> tuple[ModelFinding, Mapping[str, int] | None]:
    from core.models.compatibility import layer_types, refusal, text_config
    from core.models.sources import configuration, tokenizer_of

    description: Description | None = None
    attention, refused, tokens = "", "", None
    try:
        config = configuration(name, folder)
        description = describe(name, folder, config.to_dict())
        reason = refusal(config)
        if reason is not None:
            refused = f"The model {name} {reason}"
        else:
            kinds = dict.fromkeys(kind.replace("_", " ") for kind in layer_types(text_config(config)))
            attention = f"{description.kind}, {' and '.join(kinds)} in every layer" if len(kinds) == 1 else ""
            attention = attention or f"{description.kind}, layers of {' and of '.join(kinds)}"
        tokens = tokenizer_of(name, folder).get_vocab()
    except SpecLensError as error:
        refused = refused or str(error)
    return ModelFinding(name, here, "" if here else absent, description, attention, refused), tokens


def _compare(models: tuple[ModelFinding, ...], tokens: list[Mapping[str, int]]) -> VocabularyFinding:
    from core.models.compatibility import check_vocabularies, differences, emitted

    target, draft = models
    head, draft_head = (_head(model, vocabulary) for model, vocabulary in zip(models, tokens, strict=True))
    ids = min(emitted(tokens[0]), head)
    found = differences(tokens[0], tokens[1], min(ids, draft_head))
    sentence = ""
    try:
        check_vocabularies(target.name, tokens[0], draft.name, tokens[1], ids, draft_head)
    except SpecLensError as error:
        sentence = str(error)
    return VocabularyFinding(min(ids, draft_head), len(found), tuple(found[:FIRST_DIFFERENCES]), sentence)


def _head(model: ModelFinding, tokens: Mapping[str, int]) -> int:
    stated = model.description.vocabulary if model.description is not None else None
    return stated if stated is not None else max(tokens.values()) + 1


def main(arguments: list[str]) -> int:
    """Inspects the pair named by the only argument; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m core.models.inspection PAIR", file=sys.stderr)
        return 2
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    os.nice(5)  # runs that are being timed come first

    def send(report: CheckReport) -> None:
        reports.write(report.to_line())
        reports.flush()

    finding = inspect_pair(arguments[0], lambda message, share: send(CheckReport(message=message, share=share)))
    send(CheckReport(finding=finding))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
