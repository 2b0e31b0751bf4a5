"""Takes pictures of all pages, to look at: `python -m tests.dashboard.pictures FOLDER [STATE ...]`.

The states: live, empty, huge, away, hostile.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from distributary.dashboard.pages import PAGES
from tests.dashboard.browser import MISSING, find_chromium, open_browser, open_context
from tests.dashboard.fake import HOSTILE, FakeControl
from tests.dashboard.served import serve
from tests.dashboard.services import BROKERS, TOPICS, make_hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "dark-narrow": {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"},
}
STATES: dict[str, dict[str, Any]] = {
    "live": {},
    "empty": {"empty": True},
    "huge": {"receivers": 1_000, "groups": 500, "flows": 10_000, "more_versions": 240},
    "away": {},
    "hostile": {"hostile": True},
}
EXTRA = {"path": "/plan?flow=EQ.02.014", "receiver": "/receivers?name=rates-01"}


def take_pictures(
    browser: Browser,
    address: str,
    folder: Path,
    *,
    looks: Sequence[str] = tuple(LOOKS),
    extra: Mapping[str, str] = EXTRA,
    pill: str = "live",
) -> None:
    """Take one of each page in each look, and of some pages with something chosen."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {page.key: page.path for page in PAGES} | dict(extra)
    for look in looks:
        with open_context(browser, **LOOKS[look], reduced_motion="reduce") as context:
            for name, path in paths.items():
                page = context.new_page()
                page.goto(address + path)
                page.wait_for_selector(f".pill.{pill}")
                page.wait_for_timeout(1_200)
                page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
                page.close()


def _take_of_state(browser: Browser, state: str, folder: Path) -> None:
    control = FakeControl(**STATES[state])
    is_hostile = state == "hostile"
    services = (
        {"topics": make_hostile(TOPICS), "brokers": make_hostile(BROKERS)}
        if is_hostile
        else {"topics": TOPICS, "brokers": BROKERS}
    )
    if state == "empty":
        services = {}
    extra = EXTRA
    if is_hostile:
        extra = {"path": f"/plan?flow={quote(HOSTILE)}", "receiver": f"/receivers?name={HOSTILE}"}
    if state == "away":
        control.away = "no control service answers as 'distributary' within 5 seconds; start one"
    with serve(control, **services) as address:
        looks = tuple(LOOKS) if state == "live" else ("light", "narrow")
        pill = "away" if state == "away" else "live"
        take_pictures(browser, address, folder / state, looks=looks, extra=extra, pill=pill)


def main() -> None:
    program = find_chromium()
    if program is None:
        sys.exit(MISSING)
    with open_browser(program) as browser:
        for state in sys.argv[2:] or STATES:
            _take_of_state(browser, state, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
