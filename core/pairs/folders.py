"""Model folders on this machine: where they are, whether they are complete, and the hash of their content. No torch.

A model's name is a folder or a hub name (``owner/name``). Only safetensors count as weights.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from core import settings
from core.errors import ModelUnavailable
from core.pairs import files

Progress = Callable[[str, float], None]
"""Called with a message and the share done, in [0, 1]."""

HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_HUB_PAGE = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w-][\w.-]*/[\w-][\w.-]*)(?:/[^\s+]*)?")
ADAPTER = "adapter_config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_DESCRIPTION = ["*.json", "*.jinja", "*.model", "*.txt"]
_WANTED = ["*.safetensors", *_DESCRIPTION]
_UNWANTED = ["*/*", "consolidated*"]  # other formats of the same weights lie in sub-folders


def quiet(message: str, share: float) -> None:
    """A progress callback that ignores its reports."""


def cache_dir() -> Path:
    """The folder of everything that can be made again: ``SPECLENS_CACHE``, or ``.cache`` beside ``app.py``."""
    return settings.cache_folder()


def is_path(name: str) -> bool:
    """True when the name means a folder: an existing one, or a name written like a path."""
    return Path(name).expanduser().is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1


def find(name: str) -> Path | None:
    """The model's complete folder on this machine, or None. Never asks the network."""
    folder = _here(name)
    return folder if folder is not None and lack(folder) is None else None


def partly(name: str) -> str | None:
    """What a hub model that is only partly on this machine lacks, as the end of a sentence; None for all others."""
    folder = None if is_path(name) else _here(name)
    return None if folder is None else lack(folder)


def _here(name: str) -> Path | None:
    """The model's folder on this machine, complete or not."""
    if is_path(name):
        return Path(name).expanduser()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True, ignore_patterns=_UNWANTED))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def without_addresses(name: str) -> str:
    """``name`` with each address of a model's page on the hub replaced by the model's name."""
    return _HUB_PAGE.sub(r"\1", name)


def lack(folder: Path) -> str | None:
    """The first thing that a model folder lacks, as the end of a sentence; None when it is complete."""
    if not folder.is_dir():
        return "is not a folder on this machine"
    if not (folder / "config.json").is_file():
        return "has no config.json"
    if (folder / ADAPTER).exists():
        return f"has an adapter beside its weights ({ADAPTER}), which is not applied here: merge the two into one model"
    try:
        missing = [file.name for file in weight_files(folder) if not file.is_file()]
    except ValueError as error:
        return str(error)
    if missing:
        return f"lacks the weight file {missing[0]}"
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return "has no tokenizer (tokenizer.json)"
    return None


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the library reads, in order of name; files that an index names may be missing.

    A single model.safetensors comes before an index, as in the library. Raises ValueError with the end of a sentence
    when there are none or the index can't be read.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return [single]
    if index.is_file():
        names = files.read_json(index, files.WeightIndex).weight_map.values()
        return sorted({folder / name for name in names})
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")) or any(folder.glob("*.gguf")):
        raise ValueError("has no safetensors weights (other formats are not read, as they may run code)")
    raise ValueError(f"has no weights ({SINGLE})")


def fetch(name: str, progress: Progress = quiet) -> Path:
    """The model's complete folder; a hub model that is not on this machine is downloaded.

    Raises ModelUnavailable when that is not possible.
    """
    found = find(name)
    if found is not None:
        return found
    if is_path(name):
        raise ModelUnavailable(f"The model folder {name} {lack(Path(name).expanduser())}.")
    if not HUB_NAME.fullmatch(name):
        raise ModelUnavailable(f"{name!r} is neither a folder nor a model name such as Qwen/Qwen3-0.6B.")
    progress(f"downloading {name}", 0.0)
    folder = _download(name, _WANTED)
    lacking = lack(folder)
    if lacking is not None:
        raise ModelUnavailable(f"The model {name} {lacking}.")
    return folder


def fetch_description(name: str) -> Path:
    """A folder with at least the model's configuration and tokenizer: of a hub model that is not on this machine, only
    these few megabytes are downloaded. Raises ModelUnavailable as :func:`fetch` does."""
    found = find(name)
    if found is not None:
        return found
    if is_path(name) or not HUB_NAME.fullmatch(name):
        return fetch(name)
    return _download(name, _DESCRIPTION)


def _download(name: str, patterns: list[str]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    lacking = partly(name)
    away = f"The model {name} is not on this machine" if lacking is None else f"What is here of {name} {lacking},"
    if constants.HF_HUB_OFFLINE:
        raise ModelUnavailable(f"{away} and HF_HUB_OFFLINE forbids downloading: give a local folder or unset it.")
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=_UNWANTED))
    except GatedRepoError:
        raise ModelUnavailable(
            f"{away} and its owner gives it out on request: accept its licence on the model's page, then log in with "
            "`hf auth login`."
        ) from None
    except RepositoryNotFoundError:
        raise ModelUnavailable(f"{away} and the hub knows no such model: check the name's spelling.") from None
    except LocalEntryNotFoundError:
        raise ModelUnavailable(
            f"{away} and the model hub can't be reached: connect to the network once, or give a local folder."
        ) from None
    except OSError as error:
        raise ModelUnavailable(f"{away} and its download failed ({error}): try again.") from None


# -- content --------------------------------------------------------------------------------------------------------


def content_hash(folder: Path, progress: Progress = quiet) -> str:
    """SHA-256 over a model's configuration and weights: equal exactly for equal models.

    File hashes are kept in the cache folder by path, size and modification time, so only the first load of a model
    reads every byte for its hash.
    """
    parts = [folder / "config.json", *weight_files(folder)]
    total = sum(file.stat().st_size for file in parts) or 1
    done, digest = 0, hashlib.sha256()
    for file in parts:
        progress(f"fingerprinting {file.name}", done / total)
        digest.update(f"{file.name}={_remembered_hash(file)}\n".encode())
        done += file.stat().st_size
    return digest.hexdigest()


def file_hash(file: Path) -> str:
    """SHA-256 hex digest of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remembered_hash(file: Path) -> str:
    file = file.resolve()
    state = file.stat()
    key = hashlib.sha256(f"{file}|{state.st_size}|{state.st_mtime_ns}".encode()).hexdigest()
    memory = cache_dir() / "hashes" / key
    if memory.is_file() and len(known := memory.read_text("ascii")) == 64:
        return known
    known = file_hash(file)
    memory.parent.mkdir(parents=True, exist_ok=True)
    part = memory.with_suffix(f".{os.getpid()}")
    part.write_text(known, "ascii")
    part.replace(memory)
    return known
