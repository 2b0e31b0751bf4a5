"""The pages over a real control service: every page has its data, and orders reach it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser import leave_out_charts, open_context
from tests.dashboard.client import Client, read_events
from tests.dashboard.inspection import list_faults
from tests.dashboard.real import RATES, WANTS, serve_real
from tests.dashboard.served import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_real(tmp_path_factory.mktemp("real")) as found:
        client = Client(found)
        with client.watch() as response:  # until a receiver's chart has something to show
            for each in read_events(response):
                status = each["control"]
                if status and status["waste"]["wanted"] > 100 and _has_history(client):
                    break
        yield found


def _has_history(client: Client) -> bool:
    return bool(client.get("/api/receiver?name=fx-1").json["history"])


def test_what_is_asked_for_is_answered_by_the_service(address: str) -> None:
    client = Client(address)
    rows = client.get("/api/receivers?order=name").json["rows"]
    assert [row["name"] for row in rows] == sorted(WANTS)
    assert rows[1]["missing"] == 4
    assert rows[2]["waste"]["wanted"] == pytest.approx(sum(RATES[f] for f in WANTS["rates-1"]))
    plan = client.get("/api/plan").json
    assert sum(group["flows"] for group in plan["groups"]) == len(RATES) + 1
    flow = client.get("/api/flow?name=EQ.08").json
    assert flow["wanted_by"] == ["fx-1", "rates-1"]
    assert client.get("/api/flow?name=XX").status == 404
    one = client.get("/api/receiver?name=fx-1").json
    assert one["flows"] == sorted(WANTS["fx-1"])
    assert one["history"]
    history = client.get("/api/history").json
    assert history["at"] == sorted(history["at"])
    assert max(history["wanted"]) > 100
    assert "in force" in [entry["what"] for entry in client.get("/api/changes").json]


def test_orders_reach_the_service_and_its_refusals_the_operator(address: str) -> None:
    client = Client(address)
    client.sign_in("ann")
    answer = client.post("/api/approve", {"number": 7})
    assert answer.status == 409
    assert "7" in answer.says
    answer = client.post("/api/pin", {"flow": "EQ.03", "group": 99})
    assert answer.status == 409
    assert "99" in answer.says
    before = client.get("/api/plan").json["version"]
    answer = client.post("/api/pin", {"flow": "EQ.03", "group": 2})
    assert answer.status == 200
    flow = client.get("/api/flow?name=EQ.03").json
    assert (flow["group"], flow["pinned"]) == (2, 2)
    assert client.get("/api/changes").json[0]["who"] == "ann"
    assert client.post("/api/pin", {"flow": "EQ.03", "group": None}).status == 200
    answer = client.post("/api/roll-back", {"version": before})
    assert answer.status == 200
    assert client.post("/api/mode", {"mode": "auto"}).status == 200
    assert client.post("/api/mode", {"mode": "manual"}).status == 200


def test_pages_show_what_the_service_says(browser: Browser, address: str) -> None:
    shown = {
        "/": ("nyse", "messages per second reach receivers that want them"),
        "/plan": ("of at most 4", "Full colour"),
        "/plan?flow=EQ.08": ("Want it: 2", "rates-1"),
        "/receivers": ("3 receivers", "fx-1", "at first filter"),
        "/receivers?name=energy-1": ("Receiver energy-1", "<b>nobody publishes it</b>"),
        "/changes": ("first by control", "came to be wanted"),
        "/pipeline": ("no stream plans here", "No rows were read yet."),
    }
    with open_context(browser, viewport={"width": 400, "height": 800}) as context:
        page = context.new_page()
        for path, texts in shown.items():
            page.goto(address + path)
            page.wait_for_selector(".pill.live")
            for text in texts:
                page.get_by_text(text).first.wait_for()
            assert list_faults(page) == [], path


def test_a_flow_is_pinned_and_a_version_rolled_back_to_by_clicking(
    browser: Browser, address: str
) -> None:
    with open_context(browser) as context:
        leave_out_charts(context)
        page = context.new_page()
        page.goto(f"{address}/plan?flow=EQ.12")
        page.get_by_label("Keep it in group").fill("1")
        page.get_by_role("button", name="Pin").click()
        _sign_in(page)
        page.get_by_role("dialog").get_by_role("button", name="Pin").click()
        page.get_by_text("Pinned to group 1").wait_for()
        page.get_by_role("button", name="Let it go").click()
        page.get_by_role("dialog").get_by_role("button", name="Let it go").click()
        page.get_by_label("Keep it in group", exact=True).wait_for()
        page.get_by_role("link", name="Changes").click()
        page.get_by_role("button", name="Roll back to version 1", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        top = page.locator("#versions-table tbody tr").first
        top.get_by_text("rolled back by bea").wait_for()
        assert top.get_by_text("in force").is_visible()


def _sign_in(page: Page) -> None:
    dialog = page.get_by_role("dialog", name="Sign in as an operator")
    dialog.get_by_label("Your name").fill("bea")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_role("button", name="Sign in").click()
