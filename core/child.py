"""Child processes of the app: the environment in which they run this package."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """This process's environment, with this package's root first in PYTHONPATH: a child can import the package from
    whatever folder the app was started in, and keeps that working folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
