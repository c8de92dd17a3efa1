"""What scripts do on the overview and on lists: both refresh themselves and leave what one is at alone."""

from typing import Any

import pytest

from stator.extensions.overview import admin as overview
from stator.models import Report
from stator.rows import columns
from tests.browser.conftest import Browser
from tests.stator.admin.requests import LIST, set_columns
from tests.testapp.operators import Parcel

OVERVIEW = "/admin/stator/overview/?model=testapp.Parcel"


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
