"""Files that appear complete or not at all: written under a partial name, renamed at the end."""

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
    """Context manager for files of one folder: each is written as ``NAME.partial``; all are renamed once all are whole.

    After any failure, a keyboard interrupt included, the partial files are removed and existing files are unchanged.
    An OSError becomes a SpecLensError, which names the partial files that could not be removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[IO[bytes]] = []
        self._names: list[str] = []

    def new(self, name: str) -> IO[bytes]:
        """Opens the file that will be called ``name``."""
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
            except OSError as late:  # closing writes the buffers, for which there may be no room
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
        """Removes the partial files; returns those that could not be removed."""
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
