"""The Rule lab in a browser: a value typed into the table changes every law and the link; the page fits its width."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import View, fits
from tests.helpers.running_app import RunningApp


def lab(view: View, app: RunningApp, width: int = 1280, theme: str = "light", query: str = "") -> Page:
    """The page, opened at its address, with its first table drawn."""
    page = view(f"{app.url}/rules{query}", width, theme)
    expect(page.locator(".sl-lab").first).to_be_visible()
    return page


def test_a_typed_probability_changes_every_law_and_the_link_which_opens_the_same(app: RunningApp, view: View) -> None:
    page = lab(view, app)
    lossless = page.locator('tr[data-row="lossless"] td')
    expect(lossless.first).to_have_text("0.800")
    grid = page.get_by_test_id("stDataFrame").first
    box = grid.locator("canvas").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 60, box["y"] + 52)  # q of A: the first line under the head
    expect(grid.locator('td[aria-selected="true"]')).to_have_text("0.6")
    page.keyboard.press("Enter")
    field = page.locator("#portal input")
    expect(field).to_be_focused()
    field.fill("0.1")
    field.press("Enter")
    expect(page.get_by_text("q as given sums to 0.5: scaled to 1.")).to_be_visible()
    expect(lossless.first).to_have_text("0.600")
    expect(page).to_have_url(re.compile(r"p=0\.5(,|%2C)0\.3(,|%2C)0\.2&q=0\.1(,|%2C)0\.1(,|%2C)0\.3"))
    other = lab(view, app, query="?" + page.url.split("?")[1])
    expect(other.locator('tr[data-row="lossless"] td').first).to_have_text("0.600")


def test_the_tabs_draw_their_figures_and_the_address_keeps_the_tab(app: RunningApp, view: View) -> None:
    page = lab(view, app)
    page.get_by_role("tab", name="One rule").click()
    expect(page.locator(".st-key-lab_law .main-svg").first).to_be_visible()
    expect(page).to_have_url(re.compile("tab=one"))
    page.get_by_role("tab", name="Article's examples").click()
    expect(page.locator('tr[data-row="First"] td').nth(5)).to_have_text("1.868 ×")
    expect(page.locator(".st-key-lab_budget .main-svg").first).to_be_visible()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (820, "dark")])  # colours move no box
def test_the_page_fits_its_width_in_both_themes(app: RunningApp, view: View, width: int, theme: str) -> None:
    page = lab(view, app, width, theme, "?preset=heavy_tailed")
    fits(page)
    ink = page.locator(".sl-lab th[scope=row]").first.evaluate("name => getComputedStyle(name).color")
    assert ink == ("rgb(22, 32, 43)" if theme == "light" else "rgb(233, 237, 242)")
