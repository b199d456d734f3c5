"""Each setting of the environment is read in one way, whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BadInput
from core.pairs.folders import cache_dir
from core.settings import ROOT_FOLDER, cache_folder, data_folder
from storage.connect import default_path


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_unset_or_empty_variable_is_no_folder(monkeypatch, value):
    for name in ("SPECLENS_DATA", "SPECLENS_CACHE"):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert data_folder() == ROOT_FOLDER / "data"
    assert default_path() == ROOT_FOLDER / "data" / "speclens.duckdb"
    assert cache_dir() == cache_folder() == ROOT_FOLDER / ".cache"


def test_a_tilde_is_the_home_folder_for_every_reader(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECLENS_DATA", "~/runs")
    monkeypatch.setenv("SPECLENS_CACHE", "~/made")
    assert default_path() == tmp_path / "runs" / "speclens.duckdb"
    assert cache_dir() == (tmp_path / "made").resolve()


def test_the_home_folder_of_nobody_is_a_sentence(monkeypatch):
    monkeypatch.setenv("SPECLENS_DATA", "~no-such-person/runs")
    with pytest.raises(BadInput, match=r"SPECLENS_DATA is '~no-such-person/runs', and there is no such home folder"):
        data_folder()


def test_no_other_module_reads_these_settings():
    readers = {
        path.name
        for folder in ("core", "storage", "pages")
        for path in (Path(ROOT_FOLDER) / folder).rglob("*.py")
        if any(f'("{name}"' in path.read_text("utf-8") for name in ("SPECLENS_DATA", "SPECLENS_CACHE"))
    }
    assert readers == {"settings.py"}
