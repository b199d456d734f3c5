"""Screenshots for docs/: starts the app on a free port with a temporary data folder, operates it, and saves its pages.

    python scripts/screenshots.py [OUT_FOLDER]

Every page at both widths and in both themes, all of the same runs. Uses the embedded model, so the numbers are real.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.running_app import REPO, open_browser, running_app

SLOW_MS = 600_000
WIDTHS, THEMES = (1280, 820), ("light", "dark")
RUNNING = '[data-status="running"]'
DONE = '[data-status="done"]'
expect.set_options(timeout=60_000)


def main(folder: Path) -> None:
    """Takes every screenshot of the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, running_app(Path(data), fake=False) as app, open_browser() as browser:
        pages = made(app.url, _page(browser, 1280, "light"))
        for width, theme in product(WIDTHS, THEMES):
            page = _page(browser, width, theme)
            for name, (address, shown) in pages.items():
                page.goto(address)
                expect(page.locator(shown).first).to_be_visible()
                _save(page, folder / f"{name}-{theme}-{width}.png", at=shown if name in SCROLLED else "")
            page.context.close()


SCROLLED = ("inspector",)
"""Screenshots of something further down a page."""


def made(url: str, page: Page) -> dict[str, tuple[str, str]]:
    """Runs to show; for each screenshot an address and what must be visible there."""
    page.goto(url)
    first = _run(page)
    page.get_by_role("button", name="Measure plain").click()
    expect(page.locator('[data-metric="speed_up"] dd')).to_contain_text("×", timeout=SLOW_MS)
    page.get_by_role("combobox", name="Drafter").first.click()
    page.get_by_role("option", name="Early exit").click()
    for label, value in (("Candidates γ", "5"), ("Temperature", "0.7"), ("Max new tokens", "24")):
        field = page.get_by_role("spinbutton", name=label)
        field.fill(value)
        field.press("Tab")
    page.get_by_text("Race a second configuration").click()
    race = _run(page, lanes=2)
    one, two = (race.split(f"{name}=")[1].split("&")[0] for name in ("run", "race"))
    return {
        "live": (first, DONE),
        "race": (race, DONE),
        "inspector": (f"{url}/?run={two}", '[class*="st-key-inspector_"]'),
        "compare": (f"{url}/compare?runs={one},{two}&base={one}", ".js-plotly-plot .bars"),
        "history": (f"{url}/history", ".sl-table tbody tr"),
        "replay": (f"{url}/history?run={two}&show=replay", '[data-metric="speed_up"]'),
        "rules": (f"{url}/rules", ".js-plotly-plot .scatterlayer"),
        "rules-one": (f"{url}/rules?tab=one", ".js-plotly-plot"),
        "rules-paper": (f"{url}/rules?tab=paper", ".js-plotly-plot"),
        "models": (f"{url}/models", '[data-testid="stExpander"], .sl-facts, table'),
    }


def _page(browser: Browser, width: int, theme: str) -> Page:
    dark = "dark" if theme == "dark" else "light"
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=dark).new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: print("page error:", error, file=sys.stderr))
    page.on("crash", lambda _: print("the page crashed", file=sys.stderr))
    return page


def _run(page: Page, lanes: int = 1) -> str:
    """Presses Run or Race and waits for the end; returns the address of the result."""
    before = page.url
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    page.locator(".st-key-run button").click()
    page.wait_for_url(lambda url: "run=" in url and url != before)
    expect(page.locator(RUNNING).first).to_be_visible()  # no longer the run before
    expect(page.locator(DONE)).to_have_count(lanes, timeout=SLOW_MS)
    return page.url


def _save(page: Page, path: Path, at: str = "") -> None:
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)  # stands in for a piece whose script is on its way
    if at:
        page.locator(at).last.evaluate("piece => piece.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(900)  # transitions
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs" / "screens")
