"""History in a browser: replay beside what streamed, labels and deletion by key, exports that open, links that last."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from playwright.sync_api import Page, expect

from tests.browser.conftest import View, ask, fits, status
from tests.helpers.running_app import RunningApp

ROWS = """() => {
  const list = document.querySelector('[class*="st-key-roundlist"]');
  if (!list) return null;
  return [...list.querySelectorAll('.sl-round')].map((row) => ({
    no: row.querySelector('.sl-no').textContent.trim(),
    chips: [...row.querySelectorAll('.sl-chip')].map((c) => [c.className, c.textContent, c.getAttribute('aria-label')]),
  }));
}"""
"""The rounds as drawn: each with its number and, of each chip, the fate's class, the text and the tip."""


def rows(page: Page) -> list[dict[str, Any]]:
    """The rounds in the list now."""
    return page.evaluate(ROWS) or []


def settled(page: Page) -> None:
    """Wait until no script runs."""
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()


def search(page: Page, text: str) -> None:
    """Go to History and look for a text."""
    page.get_by_role("link", name="History").click()
    field = page.get_by_role("textbox", name="Search")
    field.fill(text)
    field.press("Enter")
    page.wait_for_url(lambda url: "q=" in url)
    settled(page)


def test_a_replay_shows_at_a_round_exactly_what_streamed_at_that_round(app: RunningApp, view: View) -> None:
    page = view(app.url)
    page.get_by_text("Start paused").click()
    settled(page)
    ask(page, "slow replay", 5000)
    status(page, "paused")
    for count in range(1, 5):
        page.get_by_role("button", name="Step one round").click()
        expect(page.locator(".sl-round")).to_have_count(count)
    settled(page)
    streamed = rows(page)
    assert [row["no"] for row in streamed] == ["1", "2", "3", "4"]
    page.locator(".st-key-stop button").click()
    status(page, "cancelled")
    run = page.url.rpartition("run=")[2]

    replay = view(f"{app.url}/history?run={run}&show=replay")
    expect(replay.locator('[data-replay="0"]')).to_be_visible()
    assert rows(replay) == []
    for count in range(1, len(streamed) + 1):
        replay.get_by_role("button", name="Next").click()
        expect(replay.locator(f'[data-replay="{count}"]')).to_be_visible()
    settled(replay)
    assert rows(replay) == streamed
    replay.get_by_role("button", name="First").click()
    expect(replay.locator('[data-replay="0"]')).to_be_visible()
    thumb = replay.get_by_role("slider")
    thumb.focus()
    replay.keyboard.press("ArrowRight")
    expect(replay.locator('[data-replay="1"]')).to_be_visible()
    settled(replay)
    assert rows(replay) == streamed[:1]
    replay.get_by_role("combobox", name="Speed").click()
    replay.get_by_role("option", name="100 rounds a second").click()
    settled(replay)
    replay.get_by_role("button", name="Play").click()
    expect(replay.get_by_text("The end: stop, cancelled.")).to_be_visible()
    expect(replay.get_by_role("button", name="Play")).to_be_enabled()


def test_a_run_is_named_tagged_and_deleted_by_keyboard_and_its_link_shows_the_same_elsewhere(
    app: RunningApp, view: View
) -> None:
    page = view(app.url)
    for number in range(2):
        ask(page, f"labelled {number}", 20)
        status(page, "done")
    search(page, "labelled")
    expect(page.locator('[data-count="2"]')).to_be_visible()
    page.locator(".sl-table tbody input").first.focus()
    page.keyboard.press("Space")
    expect(page.locator('[data-selected="1"]')).to_be_visible()
    page.get_by_role("button", name="Edit").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    name = dialog.get_by_role("textbox", name="Name")
    name.focus()
    page.keyboard.type("My <b>best</b> run")
    page.keyboard.press("Tab")
    dialog.get_by_role("combobox", name="Tags").focus()
    page.keyboard.type("keyed")
    expect(page.get_by_role("option", name="Add: keyed")).to_be_visible()
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("keyed", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    dialog.get_by_role("button", name="Save").focus()
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    row = page.locator(".sl-table tbody tr").first
    expect(row.locator(".sl-named")).to_have_text("My <b>best</b> run")
    expect(row.locator(".sl-tag")).to_have_text("keyed")
    expect(row.locator("input")).to_be_checked()

    search(page, "<b>best</b>")
    expect(page.locator('[data-count="1"]')).to_be_visible()
    page.get_by_role("button", name=re.compile("^Prompt")).click()
    page.wait_for_url(lambda url: "sort=prompt" in url and "order=up" in url)
    another = view(page.url, width=820, theme="dark")
    expect(another.locator('[data-count="1"]')).to_be_visible()
    expect(another.locator("th[aria-sort=ascending]")).to_have_text("Prompt ↑")
    expect(another.locator(".sl-named")).to_have_text("My <b>best</b> run")
    fits(another)
    another.context.close()

    page.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    expect(page.locator('[data-delete="1"]')).to_be_visible()
    page.get_by_role("button", name="Delete for good").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.get_by_role("textbox", name="Search").fill("labelled")
    page.keyboard.press("Enter")
    expect(page.locator('[data-count="1"]')).to_be_visible()


def test_exports_download_and_open(app: RunningApp, view: View, tmp_path: Path) -> None:
    page = view(app.url)
    ask(page, "exported", 20)
    status(page, "done")
    search(page, "exported")
    page.get_by_role("button", name="Export").click()
    saved: dict[str, Path] = {}
    for what, format in (("Rounds", "CSV"), ("Rounds", "Parquet"), ("All tables", "Parquet")):
        page.get_by_role("radiogroup", name="What").get_by_text(what).click()
        page.get_by_role("radiogroup", name="Format").get_by_text(format, exact=True).click()
        settled(page)
        page.get_by_role("button", name="Create file").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=re.compile(r"^Download \(")).click()
        saved[f"{what} {format}"] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[f"{what} {format}"])
    with saved["Rounds CSV"].open(encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    typed = pq.read_table(saved["Rounds Parquet"])
    assert len(table) == typed.num_rows > 3
    assert [row["run_id"] for row in table] == typed.column("run_id").to_pylist()
    with zipfile.ZipFile(saved["All tables Parquet"]) as bundle:
        assert {"data_dictionary.csv", "candidates.parquet"} <= set(bundle.namelist())


def test_new_runs_appear_by_themselves_and_leave_scroll_and_selection_where_they_were(
    app: RunningApp, view: View
) -> None:
    live = view(app.url)
    ask(live, "watched first", 20)
    status(live, "done")
    page = view(f"{app.url}/history?q=watched", 900)
    page.set_viewport_size({"width": 900, "height": 300})
    box = page.locator(".sl-table tbody input").first
    box.click()
    expect(page.locator('[data-selected="1"]')).to_be_visible()
    settled(page)
    page.locator(".sl-table tbody tr").last.scroll_into_view_if_needed()
    main = page.get_by_test_id("stMain")
    before = main.evaluate("main => main.scrollTop")
    assert before > 0
    ask(live, "watched second", 20)
    status(live, "done")
    expect(page.locator('[data-count="2"]')).to_be_attached()
    expect(page.locator(".sl-table tbody tr")).to_have_count(2)
    assert page.locator(".sl-table tbody input").nth(1).is_checked()
    assert not page.locator(".sl-table tbody input").nth(0).is_checked()
    assert main.evaluate("main => main.scrollTop") == before
