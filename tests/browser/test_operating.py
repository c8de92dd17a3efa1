"""What an operator does for a whole model, while workers are at it: the overview, its retry, and a pause."""

from typing import Any

import pytest

from stator.admin import overview
from stator.models import Pause, Report
from stator.rows import columns
from tests.browser.conftest import Browser
from tests.processes import WorkerProcess, wait_until
from tests.stator.admin.requests import LIST, page_of, set_columns
from tests.stator.making import row
from tests.testapp.operators import Letter, Parcel

OVERVIEW = "/admin/stator/overview/?model=testapp.Parcel"
PAUSES = "/admin/stator/pause/"


def posted() -> None:
    """Return when the worker has been at work again: it has posted a letter that was written after this call."""
    letter = Letter.objects.create(number=str(Letter.objects.count()))
    wait_until(lambda: row(letter).state == "posted", message="the worker posts no letter")


def left_alone() -> Parcel | None:
    """A new parcel, if the worker leaves it alone: it learns of a pause with the next look, not with each claim."""
    parcel = Parcel.objects.create(state="stamped")
    posted()
    return parcel if (row(parcel).state, row(parcel).state_attempts) == ("stamped", 0) else None


def test_worker_obeys_a_pause_that_is_made_in_the_browser(
    browser: Browser, transactional_db: None, worker_process: type[WorkerProcess]
) -> None:
    browser.log_in()
    with worker_process("testapp.Parcel", "testapp.Letter"):
        posted()
        browser.go(f"{PAUSES}add/")
        browser.click("[name=model_label] option[value='testapp.parcel']")
        browser.one("[name=reason]").send_keys("the vans are washed")
        browser.click("[name=_save]")
        browser.reads("#result_list", "the vans are washed")
        parcel = wait_until(left_alone, message="the worker obeys no pause")
        assert left_alone()
        browser.go(LIST)
        browser.reads(".stator-notice", "Paused by ada: all states: the vans are washed.")
        browser.go(page_of(parcel))
        browser.reads(".stator-sentence", "by ada")
        browser.reads(".stator-sentence", "the vans are washed")

        # From the page of the object, to which one comes back; it moves once they have ended.
        browser.click(".stator-acts .stator-end button")
        browser.reads(".messagelist", "1 pause resumed.")
        browser.reads(".stator-why .stator-badge", "sent")
    assert not Pause.objects.active().exists()
    assert browser.complaints() == []


@pytest.fixture
def failing(transactional_db: None) -> list[Parcel]:
    """Three parcels that fail with one error."""
    parcels = [Parcel.objects.create() for _ in range(3)]
    for parcel in parcels:
        set_columns(parcel, state_ready=False, state_failures=1, state_next_attempt=columns.after(3600))
        Report.objects.create(
            model_label="testapp.parcel", object_pk=str(parcel.pk), state="packed", error="ValueError",
            message="no such street", fingerprint="f" * 16,
        )  # fmt: skip
    return parcels


def test_overview_refreshes_itself_and_retries_one_kind_of_error(
    browser: Browser, failing: list[Parcel], monkeypatch: Any
) -> None:
    monkeypatch.setattr(overview, "EVERY", 0.2)
    browser.log_in()
    browser.go(OVERVIEW)
    browser.reads("#stator-errors", "no such street")
    browser.driver.execute_script("window.untouched = true")
    browser.reads("#stator-models .stator-states", "packed 3")
    browser.click("#stator-fold-workers summary")
    Parcel.objects.create()
    browser.reads("#stator-models .stator-states", "packed 4")
    assert browser.driver.execute_script("return window.untouched"), "the page was loaded again"
    # In one step, since parts of the page are replaced.
    is_open = "return document.querySelector('#stator-fold-workers').open"
    assert browser.driver.execute_script(is_open), "what was opened is closed again"

    browser.click(".stator-retry [type=submit]")
    browser.reads(".messagelist", "3 parcels become due within a minute or so, 60 a minute.")
    assert not Parcel.stator.failed().exists()
    assert browser.complaints() == []


def test_list_refreshes_itself_and_leaves_chosen_rows_alone(browser: Browser, failing: list[Parcel]) -> None:
    browser.log_in()
    browser.go(f"{LIST}?condition=failing")
    browser.reads(".stator-offered", "All 3 found:")
    browser.driver.execute_script("window.untouched = true; document.querySelector('.action-select').click()")
    set_columns(failing[0], state_failures=0)
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    browser.driver.execute_script(look)
    assert len(browser.driver.find_elements("css selector", "#result_list tbody tr")) == 3
    browser.driver.execute_script("document.querySelector('.action-select').click()")
    browser.driver.execute_script(look)
    browser.reads(".stator-offered", "All 2 found:")
    assert len(browser.driver.find_elements("css selector", "#result_list tbody tr")) == 2
    browser.click("#action-toggle")
    browser.reads(".action-counter", "2 of")
    assert browser.driver.execute_script("return window.untouched"), "the page was loaded again"
    assert browser.complaints() == []
