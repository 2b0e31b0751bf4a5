"""The pages in a real browser: live data, no foreign request, and readable by everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from distributary.dashboard.pages import PAGES
from tests.dashboard.browser import leave_out_charts, open_context
from tests.dashboard.fake import HOSTILE, HOSTILE_NAMES, FakeControl
from tests.dashboard.inspection import list_faults
from tests.dashboard.served import serve
from tests.dashboard.services import BROKERS, TOPICS, make_hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 400, "height": 800}

# What each page shows of the pretended control plane: an element, and a text that it gets to have.
SHOWN = {
    "/": [
        ("#tiles", "v7"),
        ("#alarms", "publisher 'cme' has not reported"),
        ("#waiting-proposal", "saves 431,280 messages an hour and moves 23 flows"),
        ("#publishers", "nasdaq"),
        ("#traffic .legend", "thrown away"),
        ("#served", "control on trade-1, process 4711, 1 standing by"),
    ],
    "/plan": [
        ("#tiles", "of at most 24"),
        ("#heat button:last-child", "23"),
        ("#heat-key", "rate"),
    ],
    "/plan?flow=EQ.02.014": [
        ("#path", "239.192.77.5"),
        ("#path .gets", "Want it: 4"),
        ("#path .first", "credit-01"),
        ("#path .second", "rates-02"),
    ],
    "/receivers": [
        ("#found", "12 receivers"),
        ("#receivers tbody tr:first-child", "options-01"),
        ("#receivers tbody tr:nth-child(2)", "misses"),
        ("#receivers", HOSTILE),
    ],
    "/receivers?name=rates-01": [
        ("#one-title", "Receiver rates-01"),
        ("#one-tiles", "First filter"),
        ("#one-facts", "EQ.00.007"),
        ("#one-chart .legend", "wanted"),
    ],
    "/changes": [
        ("#proposal", "Proposal 41 saves 431,280 messages an hour"),
        ("#proposal", "23 flows would move; 9 receivers would notice"),
        ("#proof", "Receivers reported 0 messages as lost while 7 versions took over."),
        ("#versions-table tbody tr:first-child", "in force"),
        ("#versions-table", "rolled back by control"),
        ("#log li:first-child", "judged version 7"),
        ("#versions .legend", "measured"),
    ],
    "/pipeline": [
        ("#tiles", "running"),
        ("#trouble", "the stream was killed"),
        ("#rows", "publications"),
        ("#quarantine tbody tr:first-child", "ts is not a time"),
        ("#batches .legend", "drift"),
    ],
    "/topics": [("#services", "cluster-05"), ("#services", "instead of 203 without clusters")],
    "/brokers": [
        ("#graph", "frankfurt-bac…"),
        ("#brokers", "no broker answers"),
        ("#links", "B → E"),
        ("#graph", "41 waiting"),
    ],
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(FakeControl(), topics=TOPICS, brokers=BROKERS, every=0.3) as found:
        yield found


class Watched:
    """A context of the browser, with all that its pages ask for, say, and complain about."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.requests: list[str] = []
        self.complaints: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("requestfailed", self._note_failure)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("console", self._note_message)
        context.on("dialog", self._note_dialog)

    def _note_failure(self, request: Any) -> None:
        if "ERR_ABORTED" not in str(request.failure):  # what a page leaves open as it closes
            self.complaints.append(f"{request.url}: {request.failure}")

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note_dialog(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def watch(browser: Browser, *, charts: bool = True, **settings: Any) -> Iterator[Watched]:
    """Open a context; at its end no page may have complained."""
    with open_context(browser, **settings) as context:
        if not charts:
            leave_out_charts(context)
        watched = Watched(context)
        yield watched
    assert watched.complaints == []


def open_page(watched: Watched, address: str, path: str) -> Page:
    """Open a page and wait until it shows all that it should."""
    page = watched.context.new_page()
    page.goto(address + path)
    for selector, text in SHOWN.get(path, ()):
        page.locator(selector).get_by_text(text).or_(
            page.locator(selector, has_text=text)
        ).first.wait_for()
    return page


def test_every_page_is_looked_at():
    assert {path.partition("?")[0] for path in SHOWN} == {page.path for page in PAGES}


# Faults, and scripts that bring each of them into a page.
FAULTS = {
    "no label: <input": "add('input')",
    "no name: <button": "add('button')",
    "no alt: <img": "add('img').width = 9",
    "contrast 4.48: <p": "add('p', 'grey').style = 'color: #777; background: #fff'",
    "heading skips a level: <h6": "add('h6', 'deep')",
    "scrolls sideways": "add('div', 'wide').style.width = '3000px'",
    "id twice: main": "add('p').id = 'main'",
    "tabindex above 0": "add('p').tabIndex = 1",
}
_ADD = """
const add = (tag, text = "") => {
  const made = document.createElement(tag);
  made.append(text);
  document.querySelector("main").append(made);
  return made;
};
"""


def test_the_inspection_finds_what_it_looks_for(browser: Browser, address: str):
    with open_context(browser, viewport=WIDE, bypass_csp=True) as context:
        page = context.new_page()
        page.goto(f"{address}/topics")
        page.get_by_text("cluster-05").wait_for()
        page.evaluate(f"() => {{ {_ADD} {'; '.join(FAULTS.values())} }}")
        found = "\n".join(list_faults(page))
    assert [fault for fault in FAULTS if fault not in found] == []


@pytest.mark.parametrize(
    ("theme", "size"), [("light", WIDE), ("dark", NARROW)], ids=["light-wide", "dark-narrow"]
)
def test_every_page_shows_live_data_to_everybody_and_asks_nobody_else(
    browser: Browser, address: str, tmp_path: Path, theme: Any, size: Any
):
    with watch(browser, viewport=size, color_scheme=theme, reduced_motion="reduce") as watched:
        for number, path in enumerate(SHOWN):
            page = open_page(watched, address, path)
            assert page.inner_text("#connection") == "live"
            assert list_faults(page) == [], path
            assert page.evaluate("document.getAnimations().length") == 0
            page.screenshot(path=tmp_path / f"{number}.png", full_page=True)
            page.close()
    assert {url.split("/")[2] for url in watched.requests} == {address.removeprefix("http://")}
    assert any(url.endswith("/plotly.min.js") for url in watched.requests)
    pictures = sorted(tmp_path.glob("*.png"))
    assert len(pictures) == len(SHOWN)
    for picture in pictures:
        check_picture(picture, size["width"], is_dark=theme == "dark")


def check_picture(path: Path, width: int, *, is_dark: bool) -> None:
    """A page is as wide as the window, light or dark all over, and has something on it."""
    images = pytest.importorskip("PIL.Image")
    with images.open(path) as picture:
        assert picture.width == width, path
        assert picture.height > 400, path
        shades = picture.convert("L").histogram()
    low, high, pixels = sum(shades[:96]), sum(shades[160:]), sum(shades)
    ground, text = (low, high) if is_dark else (high, low)
    assert ground > 0.75 * pixels, path  # no chart or field has another theme
    assert text > 0.005 * pixels, path  # that can be read


def test_the_theme_follows_the_reader_while_a_page_is_open(browser: Browser, address: str):
    with watch(browser, viewport=WIDE, color_scheme="light") as watched:
        page = open_page(watched, address, "/")
        light = _read_colours(page)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(
            """(was) => getComputedStyle(document.querySelector("#traffic .legendtext")).fill
                 !== was""",
            arg=light["chart"],
        )
        dark = _read_colours(page)
    assert all(light[name] != dark[name] for name in light)


def _read_colours(page: Page) -> dict[str, str]:
    colours: dict[str, str] = page.evaluate(
        """() => ({
          page: getComputedStyle(document.body).backgroundColor,
          ink: getComputedStyle(document.body).color,
          chart: getComputedStyle(document.querySelector("#traffic .legendtext")).fill,
        })"""
    )
    return colours


def test_numbers_change_while_one_looks_and_what_has_the_focus_stays(
    browser: Browser, address: str
):
    with watch(browser, charts=False, viewport=WIDE) as watched:
        page = open_page(watched, address, "/receivers")
        page.locator("#receivers a").nth(3).focus()
        focused = page.evaluate("document.activeElement.textContent")
        before = page.inner_text("#tiles")
        page.wait_for_function(
            "(before) => document.querySelector('#tiles').innerText !== before", arg=before
        )
        assert page.evaluate("document.activeElement.textContent") == focused


def test_who_clicks_before_anything_is_known_breaks_nothing(browser: Browser, address: str):
    with watch(browser, charts=False, viewport=WIDE) as watched:
        watched.context.route("**/events", lambda route: None)  # says nothing
        clicked = 0
        for known in PAGES:
            page = watched.context.new_page()
            page.goto(address + known.path)
            page.wait_for_load_state("load")
            for field in page.locator("main input, main button, main select").all():
                if field.is_visible():
                    field.dispatch_event("click")
                    field.dispatch_event("input")
                    clicked += 1
            page.wait_for_timeout(100)
            page.close()
        assert clicked >= 8


def test_receivers_are_found_by_name_and_lead_to_their_flows(browser: Browser, address: str):
    with watch(browser, charts=False, viewport=WIDE) as watched:
        page = open_page(watched, address, "/receivers")
        page.get_by_label("Find by name").fill("rates")
        page.get_by_text("2 receivers of 12").wait_for()
        page.get_by_role("link", name="rates-01").click()
        page.get_by_role("link", name="EQ.00.007").click()
        page.get_by_text("Want it: 4").wait_for()
        assert page.url.endswith("/plan?flow=EQ.00.007")
        page.get_by_label("Name of a flow").fill("nothing")
        page.get_by_role("button", name="Show its path").click()
        page.get_by_text("flow 'nothing' is not in the plan, and nobody wants it").wait_for()
        watched.complaints.clear()  # the browser notes the 404


def test_a_group_opens_with_its_sessions(browser: Browser, address: str):
    with watch(browser, charts=False, viewport=WIDE) as watched:
        page = open_page(watched, address, "/plan")
        page.get_by_role("button", name="group 0: 476 messages/s").click()
        assert page.inner_text("#group-title") == "Group 0 at 239.192.77.0"
        assert page.locator("#sessions tbody tr").count() >= 1
        page.get_by_label("members").check()
        page.get_by_role("button", name="group 1: 9 members, 90").wait_for()
        assert list_faults(page) == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_hostile_names_are_shown_and_nothing_else(browser: Browser, size: Any):
    control = FakeControl(hostile=True)
    services: dict[str, Any] = {"topics": make_hostile(TOPICS), "brokers": make_hostile(BROKERS)}
    paths = [page.path for page in PAGES]
    paths += [f"/receivers?name={quote(name)}" for name in HOSTILE_NAMES[1:6]]
    paths += [f"/plan?flow={quote(HOSTILE)}"]
    with (
        serve(control, every=0.3, **services) as address,
        watch(browser, charts=False, viewport=size) as watched,
    ):
        page = watched.context.new_page()
        for path in paths if size is WIDE else paths[:4]:
            page.goto(address + path)
            page.wait_for_selector(".pill.live")
            page.locator("main").get_by_text("alert(").or_(
                page.locator("#tiles .tile")
            ).first.wait_for()
            assert page.locator("main img, main script, main b > b").count() == 0
            assert list_faults(page) == [], path
        page.goto(address + "/receivers")
        page.locator("#receivers tbody tr").nth(11).wait_for()
        names = page.locator("#receivers tbody a").all_inner_texts()
        assert HOSTILE in names
        assert '" "' in names
        assert "abc\ufffdgnp.exe" in names


def test_much_data_stays_readable(browser: Browser):
    control = FakeControl(receivers=1_000, groups=500, flows=10_000, more_versions=240)
    with (
        serve(control, every=0.3) as address,
        watch(browser, charts=False, viewport=NARROW, color_scheme="dark") as watched,
    ):
        page = watched.context.new_page()
        page.goto(f"{address}/plan")
        page.locator("#heat button").nth(499).wait_for()
        assert list_faults(page) == []
        page.goto(f"{address}/receivers")
        page.get_by_text("the first 100 of 1,000 receivers").wait_for()
        assert list_faults(page) == []
        page.goto(f"{address}/changes")
        page.get_by_label("all", exact=True).check()
        page.get_by_text("50 older of").first.click()
        page.locator("#versions-table > table > tbody > tr").nth(69).wait_for()
        assert list_faults(page) == []


def test_an_empty_control_plane_says_what_to_do(browser: Browser):
    shown = {
        "/": "No publisher yet: start one with distributary publish --control URL.",
        "/plan": "no plan is in force yet: receivers and publishers make one",
        "/receivers": "No receiver yet: start one with distributary receive --control URL.",
        "/changes": "No version came into force yet.",
        "/pipeline": "Spark is starting",
        "/topics": "give the address of its NATS server with --topics URL",
        "/brokers": "give the address of one or several with --brokers HOST:PORT",
    }
    with (
        serve(FakeControl(empty=True), every=0.3) as address,
        watch(browser, charts=False, viewport=NARROW) as watched,
    ):
        page = watched.context.new_page()
        for path, says in shown.items():
            page.goto(address + path)
            page.wait_for_selector(".pill.live")
            page.get_by_text(says).first.wait_for()
            assert list_faults(page) == [], path


def test_without_scripts_a_page_says_what_is_missing(browser: Browser, address: str):
    with open_context(browser, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address)
        assert "they need JavaScript" in page.inner_text("main")


def test_a_page_says_when_the_control_plane_is_away_and_when_the_server_is(browser: Browser):
    control = FakeControl()
    with watch(browser, charts=False, viewport=WIDE) as watched:
        page = watched.context.new_page()
        with serve(control, every=0.2) as address:
            page.goto(address)
            page.wait_for_selector(".pill.live")
            page.get_by_text("nasdaq").wait_for()
            control.away = "no control service answers; start one"
            page.wait_for_selector(".pill.away")
            assert "The control plane is away since" in page.inner_text("#banner")
            assert control.away in page.inner_text("#banner")
            assert page.get_by_text("nasdaq").is_visible()
            control.away = ""
            page.wait_for_selector(".pill.live")
            assert not page.locator("#banner").is_visible()
        page.wait_for_selector(".pill.away")
        assert "The dashboard's server does not answer" in page.inner_text("#banner")
        with serve(control, every=0.2, port=int(address.rpartition(":")[2])):
            page.wait_for_selector(".pill.live")
            assert not page.locator("#banner").is_visible()
        watched.complaints.clear()  # the browser notes that nobody answers


def test_a_chart_gets_what_a_page_missed_and_has_no_line_where_nothing_was_measured(
    browser: Browser,
):
    ahead = 0.0
    control = FakeControl(clock=lambda: time.time() + ahead)
    with (
        serve(control, every=0.2) as address,
        watch(browser, charts=False, viewport=WIDE) as watched,
    ):
        page = watched.context.new_page()
        page.goto(address)
        page.wait_for_function("() => document.querySelector('#traffic').data")
        before = _read_chart(page)
        assert None not in before
        control.pause = (time.time(), time.time() + 30)
        ahead = 60.0  # a minute that the page did not see
        page.wait_for_function(
            "(least) => document.querySelector('#traffic').data[0].y.length > least",
            arg=len(before) + 25,
        )
        after = _read_chart(page)
    assert after.count(None) == 1


def _read_chart(page: Page) -> list[float | None]:
    found: list[float | None] = page.evaluate("document.querySelector('#traffic').data[0].y")
    return found
