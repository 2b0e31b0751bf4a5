"""Chromium for the tests, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

__all__ = ["MISSING", "find_chromium", "leave_out_charts", "open_browser", "open_context"]

MISSING = (
    "NO BROWSER: the pages are not tested. Install one with: apt-get install chromium "
    "(and the package playwright, which `make setup` installs)"
)
PATIENCE_MS = 240_000  # after which a test fails: never how long anything should take
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> Path | None:
    """The browser of this machine, if it has one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return None


@contextmanager
def open_browser(program: Path) -> Iterator[Browser]:
    """Start it with an empty profile; end it with the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def open_context(browser: Browser, **settings: Any) -> BrowserContext:
    """A context whose pages wait for as long as it takes on a busy machine."""
    context = browser.new_context(**settings)
    context.set_default_timeout(PATIENCE_MS)
    return context


def leave_out_charts(context: BrowserContext) -> None:
    """Give the pages of a context charts that only keep their data: Plotly takes most time."""
    context.route(
        "**/plotly.min.js",
        lambda route: route.fulfill(
            body="window.Plotly = { react(place, data) { place.data = data; } };",
            content_type="text/javascript",
        ),
    )
