"""Page tests: scripts run without a browser, on services that the test lays out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.ui.kit import services as root
from pages.ui.kit.services import Services
from storage.store import Store
from tests.helpers import fake_app

REPO = Path(__file__).resolve().parents[2]
FRAME = """
import streamlit as st
NAMES = ("live", "compare", "history", "rules", "models")
st.navigation([st.Page(f"pages/{{name}}.py", default=name == "{first}") for name in NAMES]).run()
"""
"""As app.py, but opening at the page under test."""

Open = Callable[..., AppTest]


@pytest.fixture
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """``open_page(name, services, **query)`` runs a page once."""

    folder = tmp_path_factory.mktemp("app")
    (folder / "pages").symlink_to(REPO / "pages")

    def run(name: str, services: Services, **query: str) -> AppTest:
        root.use(services)
        (folder / "app.py").write_text(FRAME.format(first=name), encoding="utf-8")
        at = AppTest.from_file(folder / "app.py", default_timeout=30)
        for key, value in query.items():
            at.query_params[key] = value
        return at.run()

    yield run
    root.use(None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = fake_app.open_store(tmp_path)
    yield opened
    opened.close()


def html(at: AppTest) -> str:
    """Everything a page drew through ``st.html``."""
    return "\n".join(element.body for element in at.get("html"))  # type: ignore[attr-defined]
