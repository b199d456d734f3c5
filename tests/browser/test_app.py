"""The app in a browser, with an engine that decodes by script: what a person does, and what they see."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from playwright.sync_api import TimeoutError, expect

from tests.browser.conftest import View, ask, fits, status
from tests.helpers.running_app import RunningApp, running_app


def test_the_default_example_runs_and_its_rounds_appear_as_chips(app: RunningApp, view: View) -> None:
    page = view(app.url)
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".sl-chip.sl-accepted").first).to_be_visible()
    status(page, "done")
    for fate in ("accepted", "rejected", "unreached", "correction", "bonus"):
        expect(page.locator(f".sl-chip.sl-{fate}").first).to_be_visible()
    expect(page.get_by_label("Output", exact=True)).to_contain_text("the the end")
    expect(page.locator(".sl-round")).to_have_count(30)
    assert re.search(r"run=[0-9a-z]{26}$", page.url)
    page.get_by_test_id("stPaginationNext").click()
    expect(page.get_by_text("Rounds 31–48")).to_be_visible()


def test_a_run_is_stopped_and_keeps_its_rounds(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "slow and long", 5000)
    status(page, "running")
    expect(page.locator(".sl-chip").first).to_be_visible()
    page.locator(".st-key-stop button").click()
    status(page, "cancelled")
    expect(page.locator(".sl-chip").first).to_be_visible()
    expect(page.locator(".st-key-stop button")).to_be_disabled()


def test_reload_and_page_switch_find_a_running_run_again(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "slow reload", 5000)
    status(page, "running")
    address = page.url
    page.reload()
    status(page, "running")
    assert page.url == address
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("slow reload")
    page.get_by_role("link", name="History").click()
    expect(page.locator(".sl-table .sl-is-running")).to_be_visible()
    page.get_by_role("link", name="Live").click()
    status(page, "running")
    another = view(app.url)  # another window of the same app, without the address
    status(another, "running")
    expect(another.locator(".sl-round").first).to_be_visible()
    page.locator(".st-key-stop button").click()
    status(page, "cancelled")
    status(another, "cancelled")


def test_a_second_run_waits_in_the_queue_and_says_so(app: RunningApp, view: View) -> None:
    first, second = view(app.url), view(app.url)
    for page in (first, second):  # a page that opens later would show the run that is active by then
        expect(page.get_by_text("No run yet")).to_be_visible()
    ask(first, "slow first", 5000)
    status(first, "running")
    ask(second, "second", 20)
    status(second, "queued")
    expect(second.get_by_text("next in the queue")).to_be_visible()
    first.locator(".st-key-stop button").click()
    status(second, "done")


def test_measuring_plain_gives_the_speed_up(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "measure this", 40)
    status(page, "done")
    speed_up = page.locator('[data-metric="speed_up"] dd')
    expect(speed_up).to_have_text("–")
    page.get_by_role("button", name="Measure plain").click()
    expect(speed_up).to_have_text(re.compile(r"^\d+\.\d\d ×$"))
    expect(page.get_by_role("button", name="Measure plain")).to_have_count(0)


def test_a_failure_is_a_sentence_and_whole_rounds_stay(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "fail please")
    status(page, "failed")
    expect(page.get_by_text("The logits of round 2 at node 1 are not finite: try precision float32.")).to_be_visible()
    expect(page.locator(".sl-round")).to_have_count(2)
    ask(page, "gone model")
    expect(page.get_by_text("The pair is not on this machine: choose another.")).to_be_visible()


def test_markup_in_tokens_and_prompts_stays_inert_on_both_pages(app: RunningApp, view: View) -> None:
    page = view(app.url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ask(page, "hostile <img src=x onerror=window.hacked=1>", 20)
    status(page, "done")
    expect(page.locator(".sl-chip", has_text="<img␣src=x").first).to_be_visible()
    page.get_by_role("link", name="History").click()
    page.get_by_role("button", name="Open this run").or_(page.locator(".sl-table button.open")).first.click()
    expect(page.locator(".sl-chip", has_text="<img␣src=x").first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert [url for url in asked if url.endswith("/x")] == []


def test_a_chip_tells_its_numbers_by_keyboard(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "keyboard", 20)
    status(page, "done")
    expect(page.locator("[data-round]").first).to_be_visible()  # the last redraw, which may take a focus away
    chip = page.locator(".sl-chip.sl-rejected").first
    shown = ""
    for _ in range(20):  # a redraw may take the focus away, so that a person would press the keys again
        chip.focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")  # focus by key, which is when a browser shows it
        shown = chip.evaluate("chip => getComputedStyle(chip, '::after').content")
        if "rejected" in shown:
            break
    assert "coin u 0.500" in shown and "rejected" in shown
    under_way = page.locator('[data-status="running"], [data-status="queued"]').first
    for _ in range(6):  # as above
        page.get_by_role("textbox", name="Prompt").focus()
        page.keyboard.press("Control+Enter")
        with contextlib.suppress(TimeoutError):
            under_way.wait_for(timeout=10_000)
            break
    else:
        expect(under_way).to_be_visible()
    status(page, "done")


def test_history_lists_filters_sorts_and_opens(app: RunningApp, view: View) -> None:
    page = view(app.url)
    for number in range(2):
        ask(page, f"listed {number}", 20 + 20 * number)
        status(page, "done")
    page.get_by_role("link", name="History").click()
    page.get_by_role("textbox", name="Search").fill("listed")
    page.keyboard.press("Enter")
    expect(page.locator('[data-count="2"]')).to_be_visible()
    rows = page.locator(".sl-table tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("listed 1")
    page.get_by_role("button", name=re.compile("^Submitted")).click()
    expect(rows.first).to_contain_text("listed 0")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Submitted ↑")
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    rows.first.locator("button.open").click()
    expect(page.locator(".sl-round").first).to_be_visible()
    page.get_by_role("link", name="Show on Live").click()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("listed 0")
    status(page, "done")


def test_ten_thousand_tokens_stay_a_small_page(app: RunningApp, view: View) -> None:
    page = view(app.url)
    ask(page, "quick and very long", 10_000)
    expect(page.get_by_text(re.compile(r"^Rounds \d{4}–"))).to_be_visible(timeout=120_000)
    assert page.locator(".sl-round").count() <= 40
    assert page.locator(".stApp *").count() < 3000
    status_line = page.locator('[data-status="done"]')
    expect(status_line).to_contain_text("4,000 rounds", timeout=120_000)
    expect(page.locator(".sl-round")).to_have_count(30)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (820, "dark")])  # colours move no box
def test_both_pages_fit_their_width_in_both_themes(app: RunningApp, view: View, width: int, theme: str) -> None:
    page = view(app.url, width, theme)
    ask(page, "tree", 40)
    status(page, "done")
    expect(page.locator(".sl-fork").first).to_be_visible()
    ink = "rgb(22, 32, 43)" if theme == "light" else "rgb(233, 237, 242)"
    expect(page.locator(".sl-chip").first).to_have_css("color", ink)
    fits(page)
    page.get_by_role("link", name="History").click()
    expect(page.locator(".sl-table tbody tr").first).to_be_visible()
    fits(page)


def test_a_killed_app_leaves_its_run_interrupted_with_whole_rounds(view: View, tmp_path: Path) -> None:
    with running_app(tmp_path) as first:
        page = view(first.url)
        ask(page, "slow until killed", 5000)
        expect(page.locator(".sl-round").nth(4)).to_be_visible()
        run_id = page.url.rpartition("run=")[2]
        page.close()
        first.kill()
    with running_app(tmp_path) as second:
        page = view(f"{second.url}/?run={run_id}")
        status(page, "interrupted")
        expect(page.locator(".sl-round").nth(2)).to_be_visible()
        page.close()


def test_a_second_app_on_the_same_data_says_that_the_database_is_in_use_and_still_decodes(
    app: RunningApp, view: View
) -> None:
    with running_app(app.data) as other:
        page = view(other.url)
        expect(page.get_by_text("Runs are not being kept.")).to_be_visible()
        ask(page, "hello", 20)
        status(page, "done")
        expect(page.get_by_text("runs are not being kept now")).to_be_visible()
        page.get_by_role("link", name="History").click()
        expect(page.get_by_text("History can't be read")).to_be_visible()
        page.close()


def test_every_page_has_its_own_title(app: RunningApp, view: View) -> None:
    page = view(app.url)
    for address, title in (("", "Live"), ("/compare", "Compare"), ("/history", "History"), ("/rules", "Rule lab")):
        page.goto(app.url + address)
        expect(page).to_have_title(f"{title} · SpecLens")
