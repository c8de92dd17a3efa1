"""An approver withdraws an answer, and makes a link for somebody without an account."""

import os
from pathlib import Path

import pytest

from stator.models import Event
from tests.browser.conftest import Browser
from tests.browser.test_accessibility import violations
from tests.processes import wait_until
from tests.testapp.approvals import Expense

URL, INBOX = "/admin/testapp/expense/", "/admin/stator/event/waiting/"


def looked_at(browser: Browser, name: str) -> None:
    """The page is whole and accessible on a phone and on a desk; ``SHOTS`` names a folder for pictures of it."""
    for width, theme in ((375, "dark"), (1440, "light")):
        browser.narrow(width)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        # Colours change slowly when the theme does.
        wait_until(lambda: not violations(browser), message=browser.told(f"accessible {name}"))
        assert browser.cut_off() == []
        if folder := os.environ.get("SHOTS"):
            browser.driver.save_screenshot(str(Path(folder) / f"{name}-{width}-{theme}.png"))
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def expense(transactional_db: None) -> Expense:
    return Expense.objects.create()


def test_answer_is_withdrawn_from_the_inbox_and_another_comes_by_link(browser: Browser, expense: Expense) -> None:
    user = browser.log_in()
    expense.stator.send("approve", {"note": "ok"}, by=user)
    browser.go(INBOX)
    looked_at(browser, "inbox")
    browser.click("[action$='stator/withdraw/'] button")
    browser.reads("h1", "Withdraw approve")
    looked_at(browser, "withdraw")
    browser.one("[name=reason]").send_keys("too early")
    browser.click("[type=submit][value=Withdraw]")
    browser.reads(".messagelist", "Your approve is withdrawn. 2 senders more needed.")
    assert (browser.driver.current_url.endswith(INBOX), Event.objects.count()) == (True, 0)

    expense.stator.send("approve", {"note": "ok"}, by=user)
    browser.go(f"{URL}{expense.pk}/change/")
    looked_at(browser, "object")
    browser.click("[action$='stator/link/'] button[value=approve]")
    browser.reads("h1", "Link for approve")
    browser.one("[name=address]").send_keys("eve@example.org")
    looked_at(browser, "link-form")
    browser.click("[type=submit][value='Make the link']")
    browser.reads("#content", "eve@example.org can send approve")
    looked_at(browser, "link")
    browser.go(browser.one(".stator-link input").get_attribute("value").removeprefix(browser.site))
    browser.one("[name=note]").send_keys("fine")
    browser.click("button[type=submit]")
    browser.reads("h1", "approve was sent")
    assert {event.sender for event in Event.objects.all()} == {user.username, "eve@example.org"}
    expense.refresh_from_db()
    assert expense.state == "approved"
    assert browser.complaints() == []
