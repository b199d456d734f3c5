from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.queries import Runs
from storage.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "speclens.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


@pytest.fixture
def stored(store: Store) -> Runs:
    return Runs(store)
