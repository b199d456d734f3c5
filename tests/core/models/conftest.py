from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.tiny import save_tiny_model


@pytest.fixture
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the test's own, where nothing is converted, hashed or downloaded yet."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SPECLENS_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A tiny Llama's folder."""
    return save_tiny_model(tmp_path / "tiny", seed=1)
