"""The Models page in a browser: load, use and free a pair; check another one in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import View, fits
from tests.helpers.running_app import RunningApp
from tests.helpers.tiny import byte_fallback_tokenizer, save_tiny_model


def models(view: View, app: RunningApp, width: int = 1280, theme: str = "light") -> Page:
    """The page, opened from the app's navigation."""
    page = view(app.url, width, theme)
    page.get_by_role("link", name="Models").click()
    expect(page.locator('[data-pair="embedded"]')).to_be_visible()
    return page


def state(page: Page, name: str) -> None:
    """Wait until the embedded pair has this state."""
    expect(page.locator('[data-pair="embedded"]')).to_have_attribute("data-state", name)


def test_a_pair_is_loaded_seen_by_another_browser_and_freed(app: RunningApp, view: View) -> None:
    page = models(view, app)
    card = page.locator(".st-key-pair_embedded")
    if card.get_by_role("button", name="Unload").count():  # an earlier test's run loaded it
        card.get_by_role("button", name="Unload").click()
    card.get_by_role("button", name="Load", exact=True).click()
    state(page, "loaded")
    expect(page.locator(".sl-held")).to_contain_text("embedded · float32 on the CPU")
    other = models(view, app)
    state(other, "loaded")
    page.get_by_role("link", name="History").click()
    expect(page.get_by_text("Hello", exact=True)).to_have_count(0)  # a load is no run
    page.get_by_role("link", name="Models").click()
    card.get_by_role("button", name="Unload").click()
    expect(card.get_by_role("button", name="Load", exact=True)).to_be_visible()
    expect(page.locator('[data-pair="embedded"]')).not_to_have_attribute("data-state", "loaded")
    expect(other.locator('[data-pair="embedded"]')).not_to_have_attribute("data-state", "loaded")


@pytest.mark.timeout(300)
def test_a_pair_of_different_vocabularies_is_refused_with_both_tokens(
    app: RunningApp, view: View, tmp_path: Path
) -> None:
    target = save_tiny_model(tmp_path / "target", seed=1)
    draft = save_tiny_model(tmp_path / "draft", seed=1, tokenizer=byte_fallback_tokenizer())
    page = models(view, app)
    field = page.get_by_role("textbox", name="Check a pair")
    field.fill(f"{target}+{draft}")
    field.press("Enter")
    expect(page.get_by_text(f"Checking {target}+{draft}")).to_be_visible()
    expect(page.locator('[data-verdict="no"]')).to_be_visible(timeout=200_000)
    expect(page.locator(".sl-diff tbody tr").first).to_have_text("3!<unk>")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (820, "dark")])  # colours move no box
def test_the_page_fits_its_width_in_both_themes(app: RunningApp, view: View, width: int, theme: str) -> None:
    page = models(view, app, width, theme)
    fits(page)
    ink = page.locator(".sl-pair h4").first.evaluate("name => getComputedStyle(name).color")
    assert ink == ("rgb(22, 32, 43)" if theme == "light" else "rgb(233, 237, 242)")
