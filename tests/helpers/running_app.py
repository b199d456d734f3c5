"""The app in its own process on a free port, and a browser to look at it: for browser tests and screenshots."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

REPO = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("SPECLENS_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
FAKE = {
    "SPECLENS_LOADER": "tests.helpers.fake_engine:load_pair",
    "SPECLENS_ENGINE": "tests.helpers.fake_engine:cycles",
}
START_S = 60.0


class RunningApp:
    """One ``streamlit run app.py``. ``url`` is where it answers; ``log`` what it printed."""

    def __init__(self, data: Path, fake: bool = True) -> None:
        self.data = data
        self.log = data / "app.log"
        data.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        environment = os.environ | {"SPECLENS_DATA": str(data)} | (FAKE if fake else {})
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--server.headless", "true"], cwd=REPO, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        self._wait_until_it_answers()

    def stop(self) -> None:
        """End it as Ctrl+C would."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait(20)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the app did not start:\n{self.log.read_text(errors='replace')}")


@contextmanager
def running_app(data: Path, fake: bool = True) -> Iterator[RunningApp]:
    """The app, stopped at the end."""
    app = RunningApp(data, fake)
    try:
        yield app
    finally:
        app.stop()


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Headless Chromium, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
