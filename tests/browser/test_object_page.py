"""The list and the page of an object, as an operator walks through them."""

from typing import Any

import pytest

from stator.admin import StatorAdmin, bulk, detail
from stator.rows import columns
from stator.testing import attempt
from tests.browser.conftest import Browser
from tests.processes import WorkerProcess, wait_until
from tests.stator.admin.requests import LIST, page_of, set_columns
from tests.stator.making import raw
from tests.testapp.operators import Parcel

BADGE, HERE = ".stator-why .stator-badge", ".stator-here text"


@pytest.fixture(autouse=True)
def soon(monkeypatch: Any) -> None:
    """Pages refresh themselves sooner than people need."""
    monkeypatch.setattr(detail, "EVERY", 0.3)


@pytest.fixture
def stuck(transactional_db: None) -> Parcel:
    """A parcel that failed and has been where it is for two hours, among others that are well."""
    others = (Parcel(address=f"no. {number}", state="delivered", state_ready=False) for number in range(300))
    Parcel.objects.bulk_create(others)
    parcel = Parcel.objects.create(orders="fail", address="no such street")
    attempt(parcel)
    set_columns(parcel, state_changed=columns.after(-7200), state_next_attempt=columns.after(3600))
    return parcel


def test_operator_finds_what_is_stuck_reads_why_retries_it_and_sees_it_move(
    browser: Browser, stuck: Parcel, worker_process: type[WorkerProcess]
) -> None:
    browser.user()
    browser.type_password()
    browser.go(LIST)
    browser.click("#changelist-filter a[href*='condition=stuck']")
    browser.reads("#result_list .field-stator_state", "packed")
    assert len(browser.driver.find_elements("css selector", "#result_list tbody tr")) == 1
    browser.click("#result_list tbody th a")

    browser.reads(".stator-sentence", "Backing off after 1 error, the last one ValueError: no such street")
    assert browser.text(BADGE) == browser.text(HERE) == "packed"
    assert "stuck: expected within 1 h" in browser.text(".stator-why h2")
    browser.click("details[data-stator-key^=error] summary")
    assert "raise ValueError" in browser.text("details[open] pre")

    # Somebody mends the cause; then it is tried again.
    Parcel.objects.filter(pk=stuck.pk).update(orders="")
    browser.click("[value=stator_retry] ~ button")
    browser.reads(".messagelist", "1 parcel is due now.")
    browser.driver.execute_script("window.untouched = true")
    with worker_process("testapp.Parcel"):
        browser.reads(BADGE, "sent")
    browser.reads(".stator-here text", "sent")
    assert "Workers do not attempt sent" in browser.text(".stator-sentence")
    assert browser.driver.execute_script("return window.untouched"), "the page was loaded again"
    assert browser.complaints() == []


def test_what_is_open_stays_open_and_times_go_on(browser: Browser, stuck: Parcel) -> None:
    browser.log_in()
    browser.go(page_of(stuck))
    browser.click("details[data-stator-key=columns] summary")
    browser.click("details[data-stator-key^=error] summary")
    before = browser.text(".stator-facts")
    wait_until(lambda: browser.text(".stator-facts") != before, message=browser.told("another time"))
    assert len(browser.driver.find_elements("css selector", ".stator-live details[open]")) == 2
    assert browser.text(".stator-status").startswith("Live, updated ")


def test_click_during_a_refresh_is_not_lost(browser: Browser, stuck: Parcel) -> None:
    """What was pressed is not replaced before it is released."""
    browser.log_in()
    browser.go(page_of(stuck))
    answers = "return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length"
    with browser.pressed("details[data-stator-key=columns] summary"):
        set_columns(stuck, state_changed=columns.after(-14400))
        enough = browser.ask(answers) + 2
        wait_until(lambda: browser.ask(answers) >= enough, message=browser.told("two answers"))
    browser.one("details[data-stator-key=columns][open]")


def failing(count: int) -> None:
    """So many parcels that failed and are not due for an hour."""
    Parcel.objects.bulk_create(Parcel() for _ in range(count))
    later = {"state_failures": 2, "state_ready": False, "state_next_attempt": columns.after(3600)}
    raw(Parcel).filter(state="packed", state_failures=0).update(**later)


def choose_all(browser: Browser) -> None:
    """That all failing parcels be retried; not yet done."""
    browser.go(f"{LIST}?condition=failing")
    browser.click("#action-toggle")
    browser.click(".actions .question a")
    browser.click("[name=action] option[value=stator_retry]")


def test_some_are_retried_at_once_and_the_rest_by_a_press_of_a_button(browser: Browser, monkeypatch: Any) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 5)
    monkeypatch.setattr(StatorAdmin, "list_per_page", 4)
    failing(8)
    browser.log_in()
    # The page between two parts waits for nobody; without scripts it waits for a press of its button.
    choose_all(browser)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.click("button[name=index]")
    browser.reads("#content-main", "Of 8 parcels so far: 5 are due now")
    assert Parcel.stator.ready().count() == 5
    browser.click("[type=submit][value='Continue']")
    browser.reads(".messagelist", "8 parcels are due now.")
    assert Parcel.stator.ready().count() == 8
