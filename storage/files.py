"""Files that appear complete or not at all: written beside their place under a name that says so."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from core.errors import SpecLensError
from storage.connect import refusal

PARTIAL = ".partial"


class Files:
    """Files of one folder, each written as ``NAME.partial`` and given its name when all are whole.

    After any failure, an interruption by the keyboard included, the partial ones are removed and what was there before
    stands unchanged. An OSError becomes a SpecLensError that names what could not be removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[IO[bytes]] = []
        self._names: list[str] = []

    def new(self, name: str) -> IO[bytes]:
        """The open file that will be called ``name``."""
        file = (self._folder / (name + PARTIAL)).open("wb")
        self._names.append(name)
        self._open.append(file)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._complete()
                return
            except OSError as late:  # buffers are written at the close, and may find no room
                error = late
        left = self._remove()
        if isinstance(error, OSError):
            kept = f"; remove what is incomplete: {', '.join(map(str, left))}" if left else ""
            raise SpecLensError(
                f"{self._folder} cannot be written: {refusal(error)}; nothing was exported{kept}."
            ) from error

    def _complete(self) -> None:
        for file in self._open:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for name in self._names:
            os.replace(self._folder / (name + PARTIAL), self._folder / name)

    def _remove(self) -> list[Path]:
        """Removes the partial files; returns those that could not be."""
        left: list[Path] = []
        for file in self._open:
            with suppress(OSError):
                file.close()
        for name in self._names:
            path = self._folder / (name + PARTIAL)
            try:
                path.unlink(missing_ok=True)
            except OSError:
                left.append(path)
        return left
