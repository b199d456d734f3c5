"""Pictures for docs/: starts the app on a free port with a temporary data folder, drives it, and saves what it shows.

    python scripts/screenshots.py [OUT_FOLDER]

Uses the embedded model, so the numbers in the pictures are real.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser.running_app import REPO, open_browser, running_app

SLOW_MS = 600_000
expect.set_options(timeout=60_000)


def main(folder: Path) -> None:
    """Every picture of the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, running_app(Path(data), fake=False) as app, open_browser() as browser:
        page = _page(browser, 1280, "light")
        page.goto(app.url)
        _run(page)
        page.get_by_role("button", name="Measure plain").click()
        expect(page.locator('[data-metric="speed_up"] dd')).to_contain_text("×", timeout=SLOW_MS)
        _save(page, folder / "live-light-1280.png")
        page.get_by_label("Drafter").click()
        page.get_by_role("option", name="Early exit").click()
        page.get_by_role("radio", name="Tree").click()
        limit = page.get_by_label("Most new tokens")  # drafting with 26 layers is slow on a CPU
        limit.fill("24")
        limit.press("Tab")
        _run(page)
        address = page.url
        _save(page, folder / "live-tree-light-1280.png", at=".sl-legend")
        dark = _page(browser, 820, "dark")
        dark.goto(address)
        expect(dark.locator(".sl-fork").first).to_be_visible()
        _save(dark, folder / "live-dark-820.png")
        for name, shown in (("history-light-1280", page), ("history-dark-820", dark)):
            shown.get_by_role("link", name="History").click()
            expect(shown.locator(".sl-table tbody tr")).to_have_count(3)
            _save(shown, folder / f"{name}.png")


def _page(browser: Browser, width: int, theme: str) -> Page:
    dark = "dark" if theme == "dark" else "light"
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=dark).new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: print("page error:", error, file=sys.stderr))
    page.on("crash", lambda _: print("the page crashed", file=sys.stderr))
    return page


def _run(page: Page) -> None:
    before = page.url
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(lambda url: "run=" in url and url != before)
    expect(page.locator('[data-status="running"]')).to_be_visible()  # no longer the run before
    expect(page.locator('[data-status="done"]')).to_be_visible(timeout=SLOW_MS)


def _save(page: Page, path: Path, at: str = "") -> None:
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)  # stands in for a piece whose script is on its way
    if page.locator(".js-plotly-plot").count():
        expect(page.locator(".js-plotly-plot .bars").first).to_be_visible()
    if at:
        page.locator(at).first.scroll_into_view_if_needed()
        page.mouse.move(900, 600)
        page.mouse.wheel(0, 500)
    page.wait_for_timeout(700)  # transitions
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs")
