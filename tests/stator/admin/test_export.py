"""Lists as CSV and JSON."""

import csv
import json
from io import StringIO

import pytest
from django.test import Client

from stator.admin import export
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import LIST
from tests.stator.making import put
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def test_json_has_the_columns_of_what_the_filters_find(admin_client: Client) -> None:
    parcel = put(Parcel, state_ready=False, state_failures=2)
    put(Parcel, state="sent", state_ready=False)
    response = admin_client.get(f"{LIST}?condition=failing&stator_as=json")
    assert 'href="?condition=failing&amp;stator_as=json"' in admin_client.get(f"{LIST}?condition=failing&p=1").text
    assert response["Content-Disposition"] == 'attachment; filename="testapp.parcel.json"'
    [told] = json.loads(response.getvalue())
    assert (told["key"], told["state"], told["why"], told["failures"]) == (
        parcel.pk, "packed", "due, after 2 errors", 2,
    )  # fmt: skip


def test_csv_has_every_part_and_no_formula_and_ends_at_the_limit_of_counts(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PART", 2)
    monkeypatch.setattr(Parcel, "__str__", lambda parcel: "=1+1")
    keys = {put(Parcel).pk for _ in range(5)}
    rows = list(csv.DictReader(StringIO(admin_client.get(f"{LIST}?stator_as=csv").getvalue().decode())))
    assert {int(row["key"]) for row in rows} == keys
    assert {row["object"] for row in rows} == {"'=1+1"}
    monkeypatch.setattr(export, "COUNTED", 4)
    assert len(json.loads(admin_client.get(f"{LIST}?stator_as=json").getvalue())) == 4


def test_needs_the_permission_of_the_list_and_a_known_type(admin_client: Client, login: Login) -> None:
    assert login().get(f"{LIST}?stator_as=csv").status_code == 403
    assert json.loads(admin_client.get(f"{LIST}?stator_as=json").getvalue()) == []
    assert admin_client.get(f"{LIST}?stator_as=xls").status_code == 400
    assert admin_client.get(f"{LIST}?stator_as=csv&nonsense=1").status_code == 400


@pytest.mark.parametrize("path", ["stator/history/", "tasks/queue/"])
def test_is_there_for_every_kind_of_list(admin_client: Client, path: str) -> None:
    assert admin_client.get(f"/admin/{path}?stator_as=csv").getvalue().decode().startswith("key,")
