"""What may go wrong around a run that is watched: nothing is lost, nothing is executed, a sentence each time."""

from __future__ import annotations

import re

import psutil
from playwright.sync_api import Dialog, Page, expect

from tests.browser.conftest import View, ask, status
from tests.helpers.running_app import RunningApp

PWNED = "<img src=x onerror=window.__pwned=1></span><script>window.__pwned=1</script>"


def run_of(page: Page) -> str:
    """The id of the run in the page's address."""
    return page.url.rpartition("run=")[2]


def test_a_run_goes_on_with_every_browser_closed_and_two_browsers_then_see_the_same(
    app: RunningApp, view: View
) -> None:
    page = view(app.url)
    ask(page, "slow and alone", 60)
    expect(page.locator(".sl-round").first).to_be_visible()
    run_id = run_of(page)
    page.context.close()
    first, second = (view(f"{app.url}/?run={run_id}") for _ in range(2))
    for page in (first, second):
        expect(page.locator(".sl-round").first).to_be_visible()
        status(page, "done")
        expect(page.locator(".sl-round")).to_have_count(24)
    seen = [page.locator('[class*="st-key-roundlist_"]').inner_text() for page in (first, second)]
    assert seen[0] == seen[1]


LATEST_IN_VIEW = """() => {
  const tail = document.querySelector('[class*="st-key-tail_"]');
  const last = [...document.querySelectorAll('.sl-round')].pop();
  if (!tail || !last) return false;
  const below = last.getBoundingClientRect().bottom - tail.getBoundingClientRect().bottom;
  return tail.scrollHeight > tail.clientHeight && below < 1;
}"""


def test_the_latest_round_stays_in_view_and_a_reader_who_scrolled_back_is_left_there(
    app: RunningApp, view: View
) -> None:
    page = view(app.url)
    ask(page, "slow tail", 5000)
    page.wait_for_function(LATEST_IN_VIEW)
    tail = page.locator('[class*="st-key-tail_"]')
    tail.evaluate("e => e.scrollBy(0, -100)")
    last = page.locator(".sl-round .sl-no").last
    before = last.inner_text()
    expect(last).not_to_have_text(before)  # it went on
    assert tail.evaluate("e => e.scrollTop") < -50
    page.locator(".st-key-stop button").click()
    status(page, "cancelled")


def test_a_killed_engine_is_said_on_the_page_its_rounds_stay_and_the_next_run_decodes(
    app: RunningApp, view: View
) -> None:
    page = view(app.url)
    ask(page, "slow until the engine dies", 5000)
    expect(page.locator(".sl-round").nth(2)).to_be_visible()
    (engine,) = psutil.Process(app.process.pid).children()
    engine.kill()
    status(page, "failed")
    expect(page.get_by_text(re.compile(r"killed by signal 9 .*It was started again\."))).to_be_visible()
    expect(page.locator(".sl-round").nth(2)).to_be_visible()
    ask(page, "after the engine died", 20)
    status(page, "done")


def test_a_prompt_of_200_kilobytes_passes_through_the_form_and_the_history(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, f"whole book {PWNED} " + "word " * 40_000, 20)
    status(page, "done")
    assert len(page.get_by_role("textbox", name="Prompt").input_value()) > 200_000
    page.get_by_role("link", name="History").click()
    row = page.locator(".sl-table tbody tr").filter(has_text="whole book").first
    expect(row).to_be_visible()
    assert len(row.inner_text()) < 1000  # the list shows how it begins
    row.locator("button.open").click()
    expect(page.locator(".sl-round").first).to_be_visible()
    expect(page.get_by_text("whole book").first).to_be_attached()
    assert page.evaluate("window.__pwned") is None


def test_hostile_tokens_prompts_and_errors_run_nothing_wherever_they_are_drawn(app: RunningApp, view: View) -> None:
    page = view(app.url)
    dialogs: list[str] = []

    def heard(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", heard)
    ask(page, f"cursed {PWNED}")
    status(page, "failed")
    error = page.get_by_text("can't be scored: try precision float32.")
    expect(error).to_contain_text('<img src=x onerror="window.hacked=1"><script>')
    ask(page, f"hostile {PWNED}", 20)
    status(page, "done")
    expect(page.locator(".sl-chip.sl-accepted").first).to_contain_text("<script>")
    page.locator(".sl-chip.sl-accepted").first.focus()  # its tip
    page.get_by_text("Plain text to copy").click()
    expect(page.get_by_test_id("stCode").filter(has_text="<script>").first).to_be_visible()
    page.get_by_role("link", name="History").click()
    failed = page.locator(".sl-table tbody tr").filter(has_text="cursed").first
    failed.locator("button.open").click()
    expect(page.get_by_text("can't be scored: try precision float32.").first).to_be_visible()
    assert page.evaluate("[window.__pwned, window.hacked]") == [None, None]
    assert page.locator("img[src=x]").count() == 0
    assert dialogs == []
