"""The files of a model folder, each read by a schema: what they hold, or a sentence about what is wrong with them.

No torch. A pipe or device in a file's place is never opened. Errors are ValueError with the end of a sentence that
begins with the model's name.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError, model_validator

LONGEST_HEADER = 100_000_000
"""Longest header that the safetensors format allows, bytes."""

LONGEST_NAME = 255
"""Longest file name of the usual file systems, bytes."""

T = TypeVar("T")

FileName = Annotated[StrictStr, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^/\\\x00]+$")]
Count = Annotated[StrictInt, Field(ge=0)]


class _Schema(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Total(_Schema):
    total_size: StrictInt | float | None = None


class WeightIndex(_Schema):
    """model.safetensors.index.json: the shard of each tensor."""

    weight_map: dict[StrictStr, FileName] = Field(min_length=1)
    metadata: _Total = _Total()


class GenerationConfig(_Schema):
    """generation_config.json, as far as the library may not say what is wrong: the tokens that end a run."""

    eos_token_id: Count | list[Count] | None = None


class _Entry(_Schema):
    dtype: StrictStr
    shape: list[Count]
    data_offsets: tuple[Count, Count]

    @model_validator(mode="after")
    def _in_order(self) -> _Entry:
        if self.data_offsets[1] < self.data_offsets[0]:
            raise ValueError("a tensor ends before it begins")
        return self


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a safetensors file: its format, its shape, and where its bytes lie in ``file``."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def numbers(self) -> int:
        """Numbers that the shape holds."""
        return math.prod(self.shape)


def read_json(file: Path, schema: type[T] | Any = dict[str, Any]) -> T:
    """The file by ``schema``. Raises ValueError for a file that is absent, unreadable or of another form."""
    try:
        if file.exists() and not file.is_file():
            raise ValueError(f"has something else than a file as {file.name}")
        found = json.loads(file.read_text("utf-8-sig"))
        return TypeAdapter(schema).validate_python(found)
    except ValidationError as error:
        raise ValueError(f"has a damaged {file.name} ({_first(error)})") from None
    except UnicodeDecodeError:
        raise ValueError(f"has a damaged {file.name} (no text in UTF-8)") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(f"has a damaged {file.name} (no JSON)") from None
    except OSError as error:
        raise ValueError(f"has an unreadable {file.name} ({error.strerror or error})") from None


def stored_tensors(file: Path) -> Mapping[str, StoredTensor]:
    """Tensors by name. The format: eight bytes of header length, the header as JSON, the tensors.

    Raises ValueError with what is wrong, to stand in brackets after the file's name.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(8)
        if len(first) < 8:
            raise ValueError(f"{size} bytes are no safetensors file")
        (length,) = struct.unpack("<Q", first)
        if length > min(LONGEST_HEADER, size - 8):
            raise ValueError("its header is longer than the file")
        try:
            header = json.loads(stream.read(length))
            if isinstance(header, dict):
                header.pop("__metadata__", None)
            entries = TypeAdapter(dict[StrictStr, _Entry]).validate_python(header)
        except (ValueError, RecursionError):  # pydantic's and json's errors are ValueErrors
            raise ValueError("its header can't be read") from None
    last = max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if 8 + length + last != size:
        raise ValueError(f"{size:,} bytes where its header promises {8 + length + last:,}")
    base = 8 + length
    return {
        name: StoredTensor(
            file, entry.dtype, tuple(entry.shape), base + entry.data_offsets[0], base + entry.data_offsets[1]
        )
        for name, entry in entries.items()
    }


def same_bytes(one: StoredTensor, other: StoredTensor, chunk: int = 1 << 24) -> bool:
    """Whether two tensors hold the same numbers in the same format."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    with one.file.open("rb") as left, other.file.open("rb") as right:
        left.seek(one.start)
        right.seek(other.start)
        rest = one.stop - one.start
        while rest > 0:
            wanted = min(chunk, rest)
            if left.read(wanted) != right.read(wanted):
                return False
            rest -= wanted
    return True


def _first(error: ValidationError) -> str:
    one = error.errors()[0]
    where = ".".join(map(str, one["loc"][:2]))
    return f"{where[:60]}: {one['msg']}" if where else one["msg"]
