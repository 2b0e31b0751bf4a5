"""Approving, rejecting, rolling back and pinning, by clicking and by the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.browser import leave_out_charts, open_context
from tests.dashboard.fake import FakeControl
from tests.dashboard.inspection import list_faults
from tests.dashboard.served import TOKEN, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def page(browser: Browser, control: FakeControl) -> Iterator[Page]:
    with serve(control, every=0.2) as address, open_context(browser) as context:
        leave_out_charts(context)
        found = context.new_page()
        found.goto(f"{address}/changes")
        found.wait_for_selector(".pill.live")
        found.locator("#log li").first.wait_for()
        yield found


def _sign_in(page: Page) -> None:
    dialog = page.get_by_role("dialog", name="Sign in as an operator")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_role("button", name="Sign in").click()


def test_a_proposal_is_approved_by_clicking(page: Page, control: FakeControl):
    page.get_by_role("button", name="Approve").click()
    assert list_faults(page) == []
    _sign_in(page)
    dialog = page.get_by_role("dialog", name="Approve proposal 41?")
    assert "23 flows move at once" in dialog.inner_text()
    assert list_faults(page) == []
    dialog.get_by_role("button", name="Approve it").click()
    page.get_by_text("version 8 is in force").wait_for()
    page.locator("#versions-table tbody tr", has_text="v8").get_by_text("in force").wait_for()
    page.get_by_text("Nothing waits.").wait_for()
    page.locator("#log").get_by_text("approved by ann").wait_for()
    assert control.versions[-1].by == "ann"
    assert page.get_by_role("button", name="Sign out ann").is_visible()


def test_a_proposal_is_rejected_with_a_reason(page: Page, control: FakeControl):
    page.get_by_role("button", name="Reject").click()
    _sign_in(page)
    dialog = page.get_by_role("dialog", name="Reject proposal 41?")
    dialog.get_by_label("Why").fill("<b>not</b> today")
    dialog.get_by_role("button", name="Reject it").click()
    page.get_by_text("proposal 41 is rejected").wait_for()
    page.locator("#log").get_by_text("<b>not</b> today").wait_for()
    assert (control.audit[-1].what, control.audit[-1].why) == ("rejected", "<b>not</b> today")


def test_a_version_is_rolled_back_to_by_clicking(page: Page, control: FakeControl):
    page.get_by_role("button", name="Roll back to version 4").click()
    _sign_in(page)
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    page.locator("#versions-table tbody tr", has_text="v8").get_by_text(
        "back to version 4"
    ).wait_for()
    assert control.versions[-1].kind == "rolled back"
    page.get_by_label("all", exact=True).check()  # version 7 has only placed a flow
    assert page.get_by_role("button", name="Roll back to version 7").is_visible()
    assert page.get_by_role("button", name="Roll back to version 8").count() == 0


def test_what_was_not_confirmed_is_not_done(page: Page, control: FakeControl):
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Approve").click()
    _sign_in(page)
    page.get_by_role("dialog", name="Approve proposal 41?").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert control.asked["approve"] == 0


def test_a_wrong_token_is_said_in_the_dialog(page: Page):
    page.get_by_role("button", name="Sign in", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("ann")
    dialog.get_by_label("Token").fill("x" * 20)
    dialog.get_by_role("button", name="Sign in").click()
    dialog.get_by_text("this is not the operator's token").wait_for()
    assert list_faults(page) == []


def test_a_proposal_that_is_gone_is_said(page: Page, control: FakeControl):
    page.get_by_role("button", name="Approve").click()
    _sign_in(page)
    dialog = page.get_by_role("dialog", name="Approve proposal 41?")
    dialog.wait_for()
    control.proposal = None
    dialog.get_by_role("button", name="Approve it").click()
    page.get_by_text("proposal 41 is gone; look at the newest one").wait_for()


def test_a_proposal_is_approved_by_the_keyboard_alone(page: Page, control: FakeControl):
    _tab_to(page, "Approve")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "operator-name"
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Approve proposal 41?").wait_for()
    _tab_to(page, "Approve it")
    page.keyboard.press("Enter")
    page.get_by_text("version 8 is in force").wait_for()
    assert control.asked["approve"] == 1


def test_the_first_tab_leads_past_the_navigation(page: Page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def _tab_to(page: Page, text: str) -> None:
    for _ in range(40):
        if page.evaluate("document.activeElement.textContent") == text:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the keyboard does not get to {text!r}")


def test_the_mode_is_changed_and_goes_back_if_it_is_not_confirmed(page: Page, control: FakeControl):
    page.get_by_label("by themselves").click()
    _sign_in(page)
    dialog = page.get_by_role("dialog", name="Change how proposals take effect?")
    dialog.get_by_role("button", name="Cancel").click()
    page.wait_for_function("() => document.querySelector('input[value=manual]').checked")
    page.get_by_label("by themselves").click()
    dialog.get_by_role("button", name="Change it").click()
    page.get_by_text("proposals: auto").first.wait_for()
    assert control.mode == "auto"


def test_a_flow_is_pinned_and_let_go(page: Page, control: FakeControl):
    page.goto(page.url.replace("/changes", "/plan?flow=EQ.02.014"))
    page.get_by_label("Keep it in group").fill("3")
    page.get_by_role("button", name="Pin").click()
    _sign_in(page)
    page.get_by_role("dialog").get_by_role("button", name="Pin").click()
    page.get_by_text("Pinned to group 3").wait_for()
    assert control.pins == {"EQ.02.014": 3}
    page.get_by_role("button", name="Let it go").click()
    page.get_by_role("dialog").get_by_role("button", name="Let it go").click()
    page.get_by_label("Keep it in group", exact=True).wait_for()
    assert control.pins == {}


def test_the_address_with_the_token_signs_in_and_forgets_it(page: Page):
    page.goto("about:blank")
    page.go_back()
    address = page.url.removesuffix("/changes")
    other = page.context.new_page()
    other.goto(f"{address}/changes#token={TOKEN.replace(' ', '%20')}")
    other.get_by_role("button", name="Sign out operator").wait_for()
    assert "token" not in other.url
    assert TOKEN not in other.content()


def test_without_a_token_nothing_can_be_done_on_the_pages(browser: Browser):
    with (
        serve(FakeControl(), token="", every=0.2) as address,
        open_context(browser) as context,
    ):
        leave_out_charts(context)
        page = context.new_page()
        page.goto(f"{address}/changes")
        page.get_by_text("These pages are read-only").wait_for()
        page.locator("#versions-table tbody tr").first.wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
        assert page.get_by_role("button", name="Roll back").count() == 0
        assert not page.locator("#mode").is_visible()
        assert not page.locator("#account").is_visible()
