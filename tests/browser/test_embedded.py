"""The main job with the real model: the default example decodes speculatively in the browser and is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import View
from tests.helpers.running_app import running_app

pytestmark = pytest.mark.model


@pytest.mark.timeout(600)
def test_the_embedded_model_decodes_the_default_example_and_history_keeps_it(view: View, tmp_path: Path) -> None:
    with running_app(tmp_path, fake=False) as app:
        page = view(app.url)
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".sl-chip.sl-accepted").first).to_be_visible(timeout=300_000)
        expect(page.locator('[data-status="done"]')).to_be_visible(timeout=300_000)
        output = page.get_by_label("Output", exact=True)
        expect(output).to_contain_text("reading room on the second floor")
        tokens = page.locator('[data-metric="tokens_per_round"] dd').inner_text()
        assert float(tokens.split()[0]) > 2.0  # prompt lookup really copies here
        page.get_by_role("link", name="History").click()
        page.locator(".sl-table button.open").first.click()
        expect(page.locator(".sl-chip.sl-accepted").first).to_be_visible()
