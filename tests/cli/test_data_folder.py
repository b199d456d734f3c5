"""Where runs are kept: the app and both command lines open one file, whatever folder they are started in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

APP = """
from pages.ui.kit.services import services
app = services()
print(app.keeper.path, app.runs.count())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the app, whose own ``data/`` a test may write to."""
    copy = tmp_path / "app"
    for name in ("core", "pages", "storage"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "app.py", copy)
    return copy


def test_the_app_and_both_command_lines_open_one_file_from_wherever_they_are_started(
    installed: Path, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def ran(*arguments: str, data: str | None = None) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "SPECLENS_DATA"}
        environment |= {"PYTHONPATH": str(installed), "SPECLENS_CACHE": str(tmp_path / "cache"), "PYTHONWARNINGS": ""}
        environment |= {} if data is None else {"SPECLENS_DATA": data}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    decode = ("-m", "core", "generate", "--save", "--raw", "--pair", str(folder), "--prompt", "a", "--max-new-tokens")
    ran(*decode, "2")
    ran(*decode, "2", data="")  # an empty variable is no folder
    kept = installed / "data" / "speclens.duckdb"
    said = ran("-m", "storage", "info").splitlines()
    assert said[0].startswith(f"file        {kept} (")
    assert "runs        2 (2 done)" in said
    assert ran("-m", "storage", "export", "--out", "exported") == "2 runs exported to exported.\n"
    assert ran("-c", APP) == f"{kept} 2\n"
    assert [entry.name for entry in elsewhere.iterdir()] == ["exported"]
