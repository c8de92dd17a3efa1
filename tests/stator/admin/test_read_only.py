"""Lists of what the framework keeps: what a search finds, and by what they are sorted, in large tables."""

import json
import re
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from stator.admin import read_only
from stator.models import History, Report
from stator.rows.clock import moment_text
from tests.stator.admin.test_filters import listed
from tests.stator.making import put
from tests.testapp.operators import Parcel

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


def test_manual_actions_are_listed_with_who_and_why(admin_client: Client) -> None:
    for _ in range(2):
        put(Parcel, state_ready=False, state_failures=1)
    Parcel.stator.failed().retry(actor="ada")
    page = admin_client.get("/admin/stator/action/?kind=retry").text
    assert "retry testapp.parcel 2 ada" in " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_times_have_their_zone_on_pages_and_files_have_them_as_they_are(admin_client: Client) -> None:
    report = Report.objects.create(model_label="testapp.parcel", object_pk="4", state="packed", error="ValueError")
    shown = f">{moment_text(report.at)}<"
    page = admin_client.get(f"{REPORTS}?o=1").text
    assert shown in page
    assert "o=-1" in page
    assert shown in admin_client.get(f"{REPORTS}{report.pk}/change/").text
    file: Any = admin_client.get(f"{REPORTS}?stator_as=json")
    [row] = json.loads(b"".join(file.streaming_content))
    assert datetime.fromisoformat(row["at"]).replace(microsecond=0) == report.at.replace(microsecond=0)
