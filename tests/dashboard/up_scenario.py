"""A whole system and a browser in one network namespace: `python -m tests.dashboard.up_scenario F`.

Runs `distributary up --simulate`, looks at every page until it has live data, approves a proposal
of Spark's stream and rolls back by clicking. Pictures of all pages are left in the folder F.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.dashboard.browser import find_chromium, open_browser, open_context
from tests.dashboard.inspection import list_faults
from tests.dashboard.pictures import take_pictures

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

UP = ("up", "--simulate", "--theme", "45s", "--approve", "manual", "--port", "0", "--json")
SPARK_MS = 420_000.0  # for Spark to start and to plan, on a machine that does much else
DATA_MS = 120_000.0


@contextmanager
def run_system(folder: Path) -> Iterator[dict[str, str]]:
    """The system; yields where its pages are."""
    program = [sys.executable, "-m", "distributary", *UP, "--out", str(folder)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        document = ""
        while not document.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "the system ended before its pages could be opened"
            document += line
        try:
            yield json.loads(document)
            process.send_signal(signal.SIGINT)
            assert process.wait(120) in (0, 130)
        finally:
            if process.poll() is None:
                process.terminate()


def watch_pages(browser: Browser, address: str) -> dict[str, str]:
    """Look at every page until it shows what the floor does; returns pages with a choice."""
    with open_context(browser) as context:
        requests: list[str] = []
        complaints: list[str] = []
        context.on("request", lambda request: requests.append(request.url))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on(
            "console",
            lambda said: said.type == "error" and complaints.append(said.text),
        )
        page = context.new_page()
        page.set_default_timeout(DATA_MS)
        page.goto(address)
        _wait_for_figure(page, "Wanted", 50)
        page.locator("#publishers tbody tr").nth(1).wait_for()
        page.locator("#traffic .legend").wait_for()
        _check(page)

        page.goto(f"{address}receivers")
        page.get_by_text("8 receivers", exact=True).wait_for()
        page.locator("#receivers a").first.click()
        page.locator("#one-chart .legend").wait_for()
        receiver = page.url
        page.locator("#one-facts a").first.wait_for()
        _check(page)
        page.locator("#one-facts a").first.click()
        page.get_by_text("Want it:").wait_for()
        flow = page.url
        page.locator("#heat button").first.wait_for()
        _check(page)

        page.goto(f"{address}changes")
        page.get_by_text("first by control").wait_for()
        _check(page)
        page.goto(f"{address}pipeline")
        _wait_for_figure(page, "Last batch", 0, SPARK_MS)
        page.locator("#rows tbody tr").first.wait_for()
        _check(page)
        for path, says in (("topics", "No topic service"), ("brokers", "No broker is shown")):
            page.goto(address + path)
            page.get_by_text(says).wait_for()
            _check(page)
    assert {url.split("/")[2] for url in requests} == {address.split("/")[2]}
    assert complaints == []
    return {"receiver": _path(receiver), "path": _path(flow)}


def approve_and_roll_back(browser: Browser, address: str) -> None:
    """Wait for a proposal of Spark's stream; approve it, and go back, by clicking."""
    with open_context(browser) as context:
        page = context.new_page()
        page.set_default_timeout(DATA_MS)
        page.goto(address.replace("/#", "/changes#"))
        page.get_by_role("button", name="Sign out operator").wait_for()
        for _ in range(5):  # a better one may take its place while somebody decides
            page.get_by_role("button", name="Approve").click(timeout=SPARK_MS)
            page.get_by_role("dialog").get_by_role("button", name="Approve it").click()
            page.locator("#said:not([hidden])").wait_for()
            if "gone" not in page.inner_text("#said"):
                break
        planned = page.locator("#versions-table tbody tr", has_text="planned by operator").first
        planned.wait_for()
        _check(page)
        page.get_by_role("button", name="Roll back to version 1", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        page.locator("#versions-table").get_by_text("rolled back by operator").first.wait_for()
        _check(page)


def _wait_for_figure(page: Page, title: str, least: float, timeout: float = DATA_MS) -> None:
    """Wait until the figure under a title is above `least`, or at 0 for counts from 0."""
    page.wait_for_function(
        """([title, least]) => [...document.querySelectorAll(".tile")].some((tile) =>
             tile.children[0].textContent === title &&
             parseFloat(tile.children[1].textContent.replaceAll(",", "")) >= least)""",
        arg=[title, least],
        timeout=timeout,
    )


def _check(page: Page) -> None:
    page.locator(".pill.live").wait_for()
    faults = list_faults(page)
    assert faults == [], faults


def _path(url: str) -> str:
    return re.sub(r"^https?://[^/]+", "", url)


def main() -> None:
    folder = Path(sys.argv[1])
    program: Any = find_chromium()
    with run_system(folder / "up") as found, open_browser(program) as browser:
        chosen = watch_pages(browser, found["page"])
        approve_and_roll_back(browser, found["operator_page"])
        take_pictures(browser, found["page"].rstrip("/"), folder / "pictures", extra=chosen)


if __name__ == "__main__":
    main()
