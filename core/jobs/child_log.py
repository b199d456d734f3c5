"""What the engine's process prints: its last lines in memory, all of it in a bounded file."""

from __future__ import annotations

import logging
import threading
from collections import deque
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

LINES = 50
LONGEST_LINE = 4096
FILE_BYTES = 1_000_000
OLD_FILES = 2


class Followed:
    """The last lines of one stream, read in a thread until its end."""

    def __init__(self, stream: IO[bytes], file: RotatingFileHandler | None) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        self._file = file
        self._thread = threading.Thread(target=self._read, args=(stream,), name="engine log", daemon=True)
        self._thread.start()

    def settle(self, timeout_s: float = 2.0) -> None:
        """Wait for the end of the stream, for a short while: a grandchild may hold it open."""
        self._thread.join(timeout_s)

    def last_words(self) -> str:
        """The last line as an appendix to a sentence, or nothing."""
        lines = [line for line in list(self._lines) if line.strip()]
        return f" Its last words: “{lines[-1].strip()[:300]}”." if lines else ""

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while part := stream.readline(LONGEST_LINE):
                line = part.decode(errors="backslashreplace").rstrip("\r\n")
                self._lines.append(line)
                if self._file is not None:
                    self._file.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))


class ChildLog:
    """One file for all that the processes print: ``path`` with :data:`OLD_FILES` rotated ones, or none."""

    def __init__(self, path: Path | None = None) -> None:
        self._file: RotatingFileHandler | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RotatingFileHandler(
                path,
                maxBytes=FILE_BYTES,
                backupCount=OLD_FILES,
                encoding="utf-8",
                delay=True,
            )

    def follow(self, stream: IO[bytes]) -> Followed:
        """Read ``stream`` to its end in a thread, which closes it."""
        return Followed(stream, self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
