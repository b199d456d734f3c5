"""Race, pause, step and the round inspector in a browser, on the scripted engine."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import View, fits, status
from tests.helpers.running_app import RunningApp


def ready(page: Page) -> None:
    """Wait until the page has drawn what was asked."""
    expect(page.locator(".stApp[data-test-script-state=notRunning]")).to_be_visible()


def fill(page: Page, scope: str, label: str, value: str) -> None:
    field = page.locator(scope).get_by_label(label, exact=True)
    field.fill(value)
    field.press("Tab")
    ready(page)


def prepare(page: Page, prompt: str, tokens: int) -> None:
    """A race of chain:5 against its tree, ready to start."""
    fill(page, ".st-key-form", "Prompt", prompt)
    fill(page, ".st-key-form", "Candidates γ", "5")
    fill(page, ".st-key-form", "Max new tokens", str(tokens))
    page.get_by_text("Race a second configuration").click()
    expect(page.locator(".st-key-race_form")).to_contain_text(
        "A tree with the same budget (3 deep, 2 wide, 6 nodes a round)"
    )
    ready(page)


def begin(page: Page) -> None:
    page.locator(".st-key-run button").click()
    page.wait_for_url(re.compile(r"run=[0-9a-z]{26}&race=[0-9a-z]{26}"))


def lanes(page: Page, name: str) -> None:
    """Wait until both lanes have this status."""
    expect(page.locator(f'.st-key-race_lanes [data-status="{name}"]')).to_have_count(2)


@pytest.mark.parametrize("steps", ["3", "5"])
def test_chain_5_races_trees_of_its_budget_and_the_link_shows_the_race_elsewhere(
    app: RunningApp, view: View, steps: str
) -> None:
    page = view(app.url)
    prepare(page, f"race against {steps} steps", 40)
    if steps == "5":  # a chain of the draft's best: s5_k1_d6
        fill(page, ".st-key-race_form", "Steps", "5")
        fill(page, ".st-key-race_form", "Top-k", "1")
    begin(page)
    lanes(page, "done")
    expect(page.locator("[data-race]")).to_contain_text("B finished first")  # its rounds are shorter on its own clock
    expect(page.locator(".st-key-lane_A .sl-h").first).to_contain_text("chain:5")
    expect(page.locator(".st-key-lane_B .sl-h").first).to_contain_text("s3_k2_d6" if steps == "3" else "s5_k1_d6")
    expect(page.locator(".sl-race .sl-lane")).to_have_count(2)
    another = view(page.url, width=820, theme="dark")
    lanes(another, "done")
    ready(another)
    first, second = (another.locator(f".st-key-lane_{name}").bounding_box() for name in "AB")
    assert first is not None and second is not None
    assert second["y"] >= first["y"] + first["height"]  # one below the other where there is no room beside
    fits(another)
    assert another.locator("[data-race]").inner_text() == page.locator("[data-race]").inner_text()
    page.get_by_role("link", name="Compare both in detail").click()
    expect(page.locator(".sl-runs tbody tr")).to_have_count(2)


def test_a_race_that_starts_paused_is_stepped_resumed_reloaded_and_stopped(app: RunningApp, view: View) -> None:
    page = view(app.url)
    prepare(page, "slow race", 5000)
    page.get_by_text("Start paused").click()
    ready(page)
    begin(page)
    lanes(page, "paused")
    rounds = page.locator(".st-key-race_lanes .sl-round")
    expect(rounds).to_have_count(0)
    for step in (1, 2):
        page.locator(".st-key-step button:visible").click()
        expect(rounds).to_have_count(2 * step)
    page.reload()
    lanes(page, "paused")
    expect(rounds).to_have_count(4)
    page.locator(".st-key-resume button:visible").click()
    lanes(page, "running")
    expect(page.locator(".st-key-lane_B .sl-round").nth(4)).to_be_visible()
    page.locator(".st-key-pause button:visible").click()
    lanes(page, "paused")
    page.locator(".st-key-stop button").click()
    lanes(page, "cancelled")
    expect(page.locator("[data-race]")).to_contain_text("No winner")


def test_the_inspector_is_reached_and_read_by_keyboard(app: RunningApp, view: View) -> None:
    page = view(app.url)
    fill(page, ".st-key-form", "Prompt", "tree by keyboard")
    fill(page, ".st-key-form", "Max new tokens", "12")
    page.locator(".st-key-run button").click()
    status(page, "done")
    ready(page)
    tree = page.locator(".sl-drawing")
    expect(tree.locator('[aria-pressed="true"]')).to_contain_text("end")
    page.locator('[data-round="2"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator('[class*="st-key-inspected_"] input')).to_have_value("3")
    expect(tree).to_have_attribute("aria-label", re.compile("^Round 3: 5 candidates"))
    tree.locator('[aria-pressed="true"]').focus()
    for key, text in (("ArrowLeft", "Ba"), ("ArrowLeft", "B"), ("ArrowDown", "A")):
        page.keyboard.press(key)
        expect(tree.locator("button:focus")).to_contain_text(text)
    page.keyboard.press("Enter")
    chosen = tree.locator('[aria-pressed="true"]')
    expect(chosen).to_have_class(re.compile("sl-rejected"))
    expect(page.get_by_text("after the committed prefix")).to_be_visible()
    expect(tree.locator("button:focus")).to_contain_text("A")  # the redraw keeps the focus


def test_markup_in_a_drawn_tree_stays_inert(app: RunningApp, view: View) -> None:
    page = view(app.url)
    fill(page, ".st-key-form", "Prompt", "hostile tree")
    fill(page, ".st-key-form", "Max new tokens", "12")
    page.locator(".st-key-run button").click()
    status(page, "done")
    expect(page.locator(".sl-drawing button", has_text="<img␣src=x").first).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.hacked") is None
