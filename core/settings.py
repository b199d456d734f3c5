"""Settings of the environment, each read in one place: for the app, the command lines and every child process alike."""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import BadInput

ROOT_FOLDER = Path(__file__).resolve().parents[1]
"""The folder of ``app.py``."""


def data_folder() -> Path:
    """Where runs are kept: ``SPECLENS_DATA``, or ``data`` beside ``app.py`` where that is unset or empty."""
    return _folder("SPECLENS_DATA", ROOT_FOLDER / "data")


def cache_folder() -> Path:
    """Where everything lies that can be made again: ``SPECLENS_CACHE``, or ``.cache`` beside ``app.py``."""
    return _folder("SPECLENS_CACHE", ROOT_FOLDER / ".cache").resolve()


def _folder(name: str, default: Path) -> Path:
    """The folder that a variable names, ``~`` being the home folder; the default where it is unset, empty or blank.

    Raises BadInput for the home folder of nobody.
    """
    given = os.environ.get(name, "").strip()
    try:
        return Path(given).expanduser() if given else default
    except RuntimeError:
        raise BadInput(f"{name} is {given!r}, and there is no such home folder: write a whole path.") from None
