"""The command line called in this process, on a tiny model in a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.__main__ import main
from tests.helpers.tiny import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", seed=0, context=4096)


@dataclass(frozen=True)
class Finished:
    """One call of the command line."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return [one for one in self.objects if "index" in one]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [one for one in self.objects if "stop_reason" in one]


Call = Callable[..., Finished]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs ``python -m core ARGUMENTS`` in this process, with data and cache folders of its own."""
    monkeypatch.setenv("SPECLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECLENS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")

    def finished(*arguments: str) -> Finished:
        monkeypatch.setattr(sys, "argv", ["python -m core", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Finished(left.value.code, out, err)

    return finished


@pytest.fixture
def generate(call: Call, folder: Path) -> Call:
    """``generate`` on the tiny model: 12 tokens of a raw prompt, no end token before them."""

    def finished(*arguments: str) -> Finished:
        given = {argument.split("=")[0] for argument in arguments}
        ours = {"--pair": str(folder), "--max-new-tokens": "12", "--min-new-tokens": "12"}
        if not given & {"--batch"}:
            ours["--prompt"] = "the quick brown fox the quick"
        defaults = [part for name, value in ours.items() if name not in given for part in (name, value)]
        return call("generate", "--raw", *defaults, *arguments)

    return finished
