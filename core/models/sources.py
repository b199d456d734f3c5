"""A model before its weights are read: its folder, configuration and tokenizer. None of its own code runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig

from core.errors import ModelUnavailable
from core.models.compatibility import refusal
from core.pairs import embedded, folders
from core.pairs.folders import Progress


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can decode here, without its weights."""

    name: str
    folder: Path
    config: PreTrainedConfig
    tokenizer: Any


def look(name: str, progress: Progress) -> Source:
    """Finds a model, downloading it if necessary, and reads its configuration and tokenizer.

    Raises ModelUnavailable for a model that is absent, damaged or can't decode here.
    """
    if name == embedded.NAME:
        name, folder = embedded.TITLE, embedded.ensure(progress)
    else:
        folder = folders.fetch(name, progress)
    config = configuration(name, folder)
    reason = refusal(config)
    if reason is not None:
        raise ModelUnavailable(f"The model {name} {reason}")
    return Source(name, folder, config, tokenizer_of(name, folder))


def configuration(name: str, folder: Path) -> PreTrainedConfig:
    """The library's complete configuration. Raises ModelUnavailable when the library can't read the file."""
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises errors of many types for unusable files
        if "trust_remote_code" in str(error):
            raise ModelUnavailable(
                f"The model {name} needs code of its own to run, which is never executed here: choose a model of an "
                "architecture that the transformers library knows."
            ) from None
        raise ModelUnavailable(f"The config.json of {name} can't be used ({first_line(error)}).") from None


def tokenizer_of(name: str, folder: Path) -> Any:
    """The model's fast tokenizer. Raises ModelUnavailable when there is none."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelUnavailable(f"The tokenizer of {name} can't be used ({first_line(error)}).") from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ModelUnavailable(f"The tokenizer of {name} has no fast form: save a tokenizer.json beside its weights.")
    return tokenizer


def first_line(error: Exception) -> str:
    """The first line of a library's error message, to quote in a sentence."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
