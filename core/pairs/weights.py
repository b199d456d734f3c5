"""What a model's weight files hold, read from their headers alone: kilobytes, never a weight. No torch here."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ModelUnavailable
from core.pairs import folders

HEAD = "lm_head.weight"
NOT_LINEAR = re.compile(r"emb|\bwte\b|\bwpe\b|\bexperts\b|\brouter\b|\bgate\.weight$")
"""In names of matrices that are no linear layers: embeddings, mixtures of experts."""

LONGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""


@dataclass(frozen=True, slots=True)
class Weights:
    """``parameters``: numbers that are stored; ``tensor_bytes``: bytes they take as stored; ``disk_bytes``: of the
    files; ``head``: of the parameters, those of an output head stored as a tensor of its own; ``linear``: those of the
    linear layers that int8 quantises, the head apart, and ``linear_rows``: their outputs."""

    parameters: int
    tensor_bytes: int
    disk_bytes: int
    head: int
    linear: int = 0
    linear_rows: int = 0


def read(name: str, folder: Path) -> Weights:
    """The weights of the model ``name`` in ``folder``, which is complete (core/pairs/folders.py).

    Raises ModelUnavailable naming the file that is damaged.
    """
    parameters = tensor_bytes = disk_bytes = head = linear = linear_rows = 0
    for file in folders.weight_files(folder):
        try:
            size = file.stat().st_size
            for tensor, (shape, length) in _tensors(file, size).items():
                count = math.prod(shape)
                parameters += count
                tensor_bytes += length
                head += count if tensor == HEAD else 0
                if _is_linear(tensor, shape):
                    linear, linear_rows = linear + count, linear_rows + shape[0]
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise ModelUnavailable(
                f"The weight file {file.name} of {name} is damaged ({_words(error)}): fetch it again."
            ) from None
        disk_bytes += size
    return Weights(parameters, tensor_bytes, disk_bytes, head, linear, linear_rows)


def _is_linear(tensor: str, shape: list[int]) -> bool:
    """A matrix of a layer, by its name. Experts and their routers are no linear layers once loaded."""
    matrix = len(shape) == 2 and tensor.endswith(".weight") and tensor != HEAD
    return matrix and not NOT_LINEAR.search(tensor)


def _tensors(file: Path, size: int) -> Mapping[str, tuple[list[int], int]]:
    """Shape and bytes of each tensor: eight bytes of length, that much JSON, then the tensors."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(LONGEST_HEADER, size - 8):
            raise ValueError("its header is longer than the file")
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    last = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if 8 + length + last != size:
        raise ValueError(f"{size:,} bytes where its header promises {8 + length + last:,}")
    return {
        name: (entry["shape"], entry["data_offsets"][1] - entry["data_offsets"][0]) for name, entry in header.items()
    }


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, struct.error | json.JSONDecodeError | UnicodeDecodeError | KeyError | TypeError):
        return "its header can't be read"
    return str(error)
