"""Compare in a browser: from a run to its counterpart in one click, and the comparison by link elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, TimeoutError, expect

from tests.browser.conftest import View, ask, fits, status
from tests.helpers.running_app import RunningApp, running_app


def compared(page: Page) -> None:
    """Wait until the page compares."""
    expect(page.locator("[data-verdict]")).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(5)
    expect(page.locator(".stApp[data-test-script-state=notRunning]")).to_be_visible()


def open_list(page: Page, box: Locator) -> None:
    """Open a list by its keyboard way; a redraw may take the focus away before the key, so that it is pressed again."""
    options = page.get_by_role("option")
    for _ in range(10):
        box.focus()
        page.keyboard.press("ArrowDown")
        try:
            options.first.wait_for(timeout=6_000)
        except TimeoutError:
            page.keyboard.press("Escape")
        else:
            return
    expect(options.first).to_be_visible()


def test_one_click_runs_the_counterpart_and_compares_and_the_link_shows_it_elsewhere(
    app: RunningApp, view: View
) -> None:
    page = view(app.url)
    ask(page, "compare me", 40)
    status(page, "done")
    page.get_by_role("button", name="s3_k2_d6").or_(page.get_by_role("button", name=re.compile(r"s\d_k2"))).click()
    page.wait_for_url(re.compile(r"/compare\?"))
    compared(page)
    expect(page.locator('[data-verdict="matched"]')).to_contain_text("Nothing but drafting differs")
    expect(page.get_by_text(re.compile("tokens are equal"))).to_be_visible()
    # the plain counterpart joins the two and becomes the baseline
    page.get_by_role("button", name="Plain", exact=True).click()
    expect(page.locator(".sl-runs tbody tr")).to_have_count(3)
    compared(page)
    expect(page.locator('[data-row="speed_up"] td', has_text="×")).to_have_count(2)
    assert len(re.findall(r"[0-9a-z]{26}", page.url.split("runs=")[1].split("&")[0])) == 3

    another = view(page.url, width=820, theme="dark")
    compared(another)
    assert another.locator("[data-row] td").all_inner_texts() == page.locator("[data-row] td").all_inner_texts()
    assert another.url == page.url
    fits(another)


def test_a_link_opened_first_thing_after_a_start_stands_in_the_frame(tmp_path: Path, view: View) -> None:
    with running_app(tmp_path) as fresh:
        page = view(f"{fresh.url}/compare?runs=0123456789abcdefghjkmnpqrs")
        expect(page.get_by_role("link", name="History")).to_be_visible()
        expect(page.get_by_text("The link names a run that is not here")).to_be_visible()
        note = page.locator(".sl-note").first
        assert note.evaluate("note => getComputedStyle(note).borderLeftStyle") == "solid"
        page.close()  # before its server goes: a page that loses it complains, and rightly


def test_markup_of_prompt_and_output_stays_inert_on_compare(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "hostile <img src=x onerror=window.hacked=1>", 20)
    status(page, "done")
    page.get_by_role("button", name="Plain", exact=True).click()
    page.wait_for_url(re.compile(r"/compare\?"))
    compared(page)
    page.get_by_role("combobox", name="Runs").click()
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("Escape")
    page.locator(".sl-side .sl-text").first.hover()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0


def test_the_keyboard_reaches_tables_texts_and_the_baseline(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "by keyboard", 20)
    status(page, "done")
    run = page.url.split("run=")[1]
    page.get_by_role("button", name="Plain", exact=True).click()
    compared(page)
    for name in ("The runs compared", "Metrics", "Output of A"):
        region = page.get_by_role("region", name=name, exact=True)
        region.focus()
        assert region.evaluate("e => e === document.activeElement")
    open_list(page, page.get_by_role("combobox", name="Baseline"))
    expect(page.get_by_role("option")).to_have_count(2)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"base={run}"))
    compared(page)
