"""Browser tests: a real app, a real Chromium; every page's console has to stay free of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, TimeoutError, expect

from tests.helpers.running_app import RunningApp, open_browser, running_app

expect.set_options(timeout=60_000)

View = Callable[..., Page]

SETTLING_MS = 20_000
"""Longest that a page may be too wide while it settles, in milliseconds."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """One app with the scripted engine; its runs stay in one temporary database."""
    with running_app(tmp_path_factory.mktemp("data")) as running:
        yield running


def serious(message: ConsoleMessage) -> bool:
    """An error, but for the one Streamlit causes itself: opened at a page's address, its client first looks for the
    server below that address."""
    return message.type == "error" and "/_stcore/" not in message.location.get("url", "")


@pytest.fixture
def view(browser: Browser) -> Iterator[View]:
    """``view(url, width, theme)`` opens a page; afterwards its console is asked for errors."""
    complaints: list[str] = []
    contexts = []

    def opened(url: str, width: int = 1280, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text) if serious(message) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def ask(page: Page, prompt: str, tokens: int | None = None) -> None:
    """Type a prompt (and a limit), press Run, and wait until the page shows the new run."""
    field = page.get_by_role("textbox", name="Prompt")
    field.fill(prompt)
    field.press("Tab")
    if tokens is not None:
        limit = page.get_by_label("Max new tokens")
        limit.fill(str(tokens))
        limit.press("Tab")
    before = page.url
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(lambda url: "run=" in url and url != before)


def status(page: Page, name: str) -> None:
    """Wait until the run that is shown has this status."""
    expect(page.locator(f'[data-status="{name}"]')).to_be_visible()


def fits(page: Page) -> None:
    """Wait until nothing is wider than the page, in two drawings after one another: a table that is still settling is
    too wide for a moment. A page that stays too wide is an error with the pixels."""
    wide = "[...document.querySelectorAll('.stMain, .stApp')].map((part) => part.scrollWidth - part.clientWidth)"
    within = f"""() => new Promise((done) => {{
      const fit = () => {wide}.every((over) => over <= 0);
      const first = fit();
      requestAnimationFrame(() => requestAnimationFrame(() => done(first && fit())));
    }})"""
    try:
        page.wait_for_function(within, timeout=SETTLING_MS)
    except TimeoutError as error:
        raise AssertionError(f"wider than the page by {page.evaluate(wide)} px") from error
