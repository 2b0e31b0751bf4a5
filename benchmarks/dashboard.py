"""The dashboard's pages in a real browser: bytes, and the time until they show data."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.dashboard.browser import MISSING, find_chromium, open_browser
from tests.dashboard.fake import FakeControl
from tests.dashboard.served import serve
from tests.dashboard.services import BROKERS, TOPICS

from benchmarks.measure import Section, shown_seconds
from distributary.dashboard.pages import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

__all__ = ["SECTIONS"]

_LOADS = 3
_WATCHED_S = 10
_SIZES: dict[str, dict[str, Any]] = {
    "12 receivers, 24 groups": {},
    "1,000 receivers, 500 groups, 10,000 flows": {
        "receivers": 1_000,
        "groups": 500,
        "flows": 10_000,
        "more_versions": 240,
    },
}

# Notes when the first figure has a number, and when a chart has its legend.
_WATCH = """
window.seen = {};
const look = () => {
  const figure = document.querySelector(".tile .figure");
  if (figure?.textContent) window.seen.data ??= performance.now();
  if (document.querySelector(".legend")) window.seen.chart ??= performance.now();
};
const changes = { subtree: true, childList: true, characterData: true };
new MutationObserver(look).observe(document, changes);
"""
_WEIGH = """
() => performance.getEntries()
  .filter((each) => each.transferSize && !each.name.endsWith("/events"))
  .map((each) => [each.name, each.transferSize])
"""


@dataclass(frozen=True)
class Load:
    """One load of a page."""

    data: float  # seconds until the first figure
    chart: float | None
    own: int  # bytes, compressed, with headers
    plotly: int


def dashboard() -> Section:
    """Load every page cold and warm, with a small and a large control plane."""
    program = find_chromium()
    if program is None:
        sys.exit(MISSING)
    load = os.getloadavg()[1]
    with open_browser(program) as browser:
        rows = [row for name in _SIZES for row in _measure(browser, name)]
        streams = [_weigh_stream(browser, name) for name in _SIZES]
    return Section(
        "Pages of the dashboard",
        f"Chromium on the same machine as the server, medians of {_LOADS} loads. Bytes are as they "
        "come over the wire, compressed, with headers. A cold load has an empty cache; a warm one "
        "keeps scripts, style and Plotly, whose addresses have a digest of their content. First "
        "data: the first key figure shows a number; chart: it is drawn. The control plane is "
        "pretended, so the times are those of the pages.",
        (
            *("control plane", "page", "bytes, cold", "besides Plotly", "bytes, warm"),
            *("first data, cold", "first data, warm", "chart, warm"),
        ),
        rows,
        "Afterwards an open page gets its news once a second, and asks for what only it shows: on "
        f"Receivers {streams[0]:,.0f} bytes a second with 12 receivers, {streams[1]:,.0f} with "
        "1,000. The stream of events has the same size however many there are. The machine's load "
        f"average was {load:.0f} when the run began: times are those of a machine with other work.",
    )


def _measure(browser: Browser, name: str) -> list[list[str]]:
    rows = []
    with serve(FakeControl(**_SIZES[name]), topics=TOPICS, brokers=BROKERS) as address:
        for page in PAGES:
            cold = [_load_alone(browser, address + page.path) for _ in range(_LOADS)]
            with browser.new_context() as context:
                _load(context, address + page.path)
                warm = [_load(context, address + page.path) for _ in range(_LOADS)]
            plotly = max(each.plotly for each in cold)
            own = _median(cold, lambda each: each.own)
            charts = [each.chart for each in warm if each.chart is not None]
            rows.append(
                [
                    name,
                    page.name,
                    f"{own + plotly:,.0f}",
                    f"{own:,.0f}",
                    f"{_median(warm, lambda each: each.own + each.plotly):,.0f}",
                    shown_seconds(_median(cold, lambda each: each.data)),
                    shown_seconds(_median(warm, lambda each: each.data)),
                    shown_seconds(statistics.median(charts)) if charts else "–",
                ]
            )
    return rows


def _load_alone(browser: Browser, address: str) -> Load:
    with browser.new_context() as context:
        return _load(context, address)


def _load(context: BrowserContext, address: str) -> Load:
    """Load a page, until everything that it shows is there."""
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(address)
    page.wait_for_function("() => window.seen.data")
    if page.locator(".chart:visible").count():
        page.wait_for_function("() => window.seen.chart")
    page.wait_for_timeout(300)
    seen = page.evaluate("window.seen")
    sizes = page.evaluate(_WEIGH)
    page.close()
    plotly = sum(size for name, size in sizes if name.endswith("/plotly.min.js"))
    chart = seen.get("chart")
    return Load(
        seen["data"] / 1_000,
        None if chart is None else chart / 1_000,
        sum(size for _, size in sizes) - plotly,
        plotly,
    )


def _median(loads: list[Load], read: Callable[[Load], float]) -> float:
    return statistics.median(map(read, loads))


def _weigh_stream(browser: Browser, name: str) -> float:
    """Bytes per second of an open page, its events included."""
    with (
        serve(FakeControl(**_SIZES[name])) as address,
        browser.new_context() as context,
    ):
        page = context.new_page()
        session = context.new_cdp_session(page)
        received: list[int] = []
        session.send("Network.enable")
        session.on("Network.dataReceived", lambda event: received.append(_count(event)))
        page.goto(f"{address}/receivers")
        page.wait_for_selector(".pill.live")
        page.wait_for_timeout(1_000)
        before = sum(received)
        page.wait_for_timeout(_WATCHED_S * 1_000)
        return (sum(received) - before) / _WATCHED_S


def _count(event: Any) -> int:
    return int(event["encodedDataLength"] or event["dataLength"])


SECTIONS = {"dashboard": dashboard}
