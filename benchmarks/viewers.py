"""Browser pages that record when they paint each round, for ``benchmarks.live``."""

from __future__ import annotations

from playwright.sync_api import Browser, BrowserContext, Page, expect

SLOW_MS = 120_000.0

TAP = """(() => {
  const known = new Set(), painted = {};
  window.__painted = painted;
  // A frame's callbacks run before it is painted; a message sent from one arrives after.
  const note = fresh => requestAnimationFrame(() => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => { const now = Date.now(); for (const index of fresh) painted[index] = now; };
    port2.postMessage(0);
  });
  new MutationObserver(() => {
    const fresh = [];
    for (const cell of document.querySelectorAll('.sl-round .sl-no')) {
      const index = parseInt(cell.textContent);
      if (!known.has(index)) { known.add(index); fresh.push(index); }
    }
    if (fresh.length) note(fresh);
  }).observe(document, {childList: true, subtree: true, characterData: true});
})();"""
"""Runs in each page before anything else: ``__painted[round]`` is the Unix time, in ms, after the first frame in which
the round's row stood in the document."""


class Viewers:
    """Pages of one browser, each in a window and session of its own, as different people would have them."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._contexts: list[BrowserContext] = []
        self.pages: list[Page] = []

    def submit(self, prompt: str, tokens: int) -> str:
        """Ask for a run through a page's form, as a person does; its id. The page stays as the first viewer."""
        page = self._open(self._url)
        field = page.get_by_role("textbox", name="Prompt")
        field.fill(prompt)
        field.press("Tab")
        limit = page.get_by_label("Most new tokens")
        limit.fill(str(tokens))
        limit.press("Tab")
        expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible(timeout=SLOW_MS)
        page.locator(".st-key-run button").click()
        page.wait_for_url(lambda url: "run=" in url, timeout=SLOW_MS)
        return page.url.rpartition("run=")[2]

    def watch(self, run_id: str, count: int) -> None:
        """Have exactly ``count`` pages look at the run; returns when all show it as running."""
        while len(self.pages) > count:
            self._contexts.pop().close()
            self.pages.pop()
        while len(self.pages) < count:
            self._open(f"{self._url}/?run={run_id}")
        for page in self.pages:
            expect(page.locator('[data-status="running"]')).to_be_visible(timeout=SLOW_MS)

    def painted(self) -> list[dict[int, float]]:
        """Per viewer, when it painted each round (Unix seconds)."""
        found = [page.evaluate("window.__painted") for page in self.pages]
        return [{int(index): at / 1000 for index, at in one.items()} for one in found]

    def close(self) -> None:
        """Close every page."""
        for context in self._contexts:
            context.close()
        self._contexts, self.pages = [], []

    def _open(self, url: str) -> Page:
        context = self._browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(TAP)
        page = context.new_page()
        page.set_default_timeout(SLOW_MS)
        page.goto(url)
        self._contexts.append(context)
        self.pages.append(page)
        return page
