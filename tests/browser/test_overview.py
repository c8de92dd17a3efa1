"""The overview in a real browser: troubles with their remedies, and what it says when it cannot be refreshed."""

from typing import Any

import pytest

from stator.extensions.overview import admin as overview
from stator.models import Pause
from tasks.models import Queue
from tests.browser.conftest import Browser
from tests.stator.making import ago, change, put
from tests.stator.overviews import URL, failing, held, worker
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def injected(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of most kinds of trouble, on a page that is refreshed sooner than people need."""
    monkeypatch.setattr(overview, "EVERY", 0.5)
    worker(heartbeat=ago(420))
    held()
    put(Parcel, state_ready=False, state_crashes=3)
    change(put(Parcel, state_ready=False), state="mislaid")
    for _ in range(3):
        failing(message="connection refused by the label printer at 10.0.0.7", error="ConnectionError")
    Pause.objects.create(model_label="testapp.parcel", state="stamped", actor="anna", reason="the disk is full")
    queue = Queue.objects.create(name="nightly", actions_elsewhere=True)
    change(queue.publish("mail").task, state="errored", state_ready=False, state_changed=ago(300))
    queue.pause(publish=True, claim=False, reason="the disk is full", author="anna")


def is_in_sight(browser: Browser, selector: str) -> bool:
    script = """
        const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight;
    """
    return bool(browser.driver.execute_script(script, selector))


def test_troubles_fit_the_screen(browser: Browser, injected: None) -> None:
    browser.log_in()
    for width in (1400, 390):
        browser.narrow(width)
        browser.go(URL)
        browser.reads("#stator-troubles", "nightly paused by anna")
        assert browser.cut_off() == []
        assert is_in_sight(browser, "#stator-troubles li button")


def test_says_in_sight_that_it_is_not_refreshed(browser: Browser, injected: None) -> None:
    browser.log_in()
    browser.go(URL)
    browser.one("#stator-live")
    browser.driver.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    browser.reads("#stator-said", "you are logged out")
    assert is_in_sight(browser, "#stator-said")


def test_says_soon_that_the_site_is_away(browser: Browser, injected: None) -> None:
    browser.log_in()
    browser.go(URL)
    browser.one("#stator-live")
    offline: dict[str, Any] = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        browser.reads("#stator-said", "Not refreshed since")
    finally:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
