"""Lists of what the framework keeps: what a search finds, and by what they are sorted, in large tables."""

from typing import Any

import pytest
from django.test import Client

from stator.admin import read_only
from stator.models import History, Report
from tests.stator.admin.test_filters import listed

HISTORY, REPORTS = "/admin/stator/history/", "/admin/stator/report/"


@pytest.fixture
def events(db: None) -> list[History]:
    """Ten acts of ada, the first of them long ago."""
    acts = [
        History(model_label="testapp.parcel", object_pk=str(number), version=1, source="packed", actor="ada")
        for number in range(10)
    ]
    return History.objects.bulk_create(acts)


def test_search_looks_at_the_newest(admin_client: Client, events: list[History], monkeypatch: Any) -> None:
    assert listed(admin_client, f"{HISTORY}?q=ada") == {event.pk for event in events}
    monkeypatch.setattr(read_only, "SEARCHED", 4)
    assert listed(admin_client, f"{HISTORY}?q=ada") == {event.pk for event in events[-5:]}
    assert listed(admin_client, HISTORY) == {event.pk for event in events}


def test_all_of_an_object_is_found_however_old(admin_client: Client, events: list[History], monkeypatch: Any) -> None:
    monkeypatch.setattr(read_only, "SEARCHED", 1)
    assert listed(admin_client, f"{HISTORY}?q=testapp.Parcel+3") == {events[3].pk}
    report = Report.objects.create(model_label="testapp.parcel", object_pk="a key", state="packed", error="ValueError")
    Report.objects.create(model_label="testapp.parcel", object_pk="4", state="packed", error="ValueError")
    assert listed(admin_client, f"{REPORTS}?q=testapp.parcel+a+key") == {report.pk}
