"""Lists of rows: columns, filters, and counts that end early."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.admin import StatorAdmin, listing
from stator.db.interface import new_token, new_worker_id
from stator.rows import columns
from tests.stator.admin.requests import LIST, claim, set_columns
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestList:
    def test_shows_what_holds_a_row(self, admin_client: Client) -> None:
        Parcel.objects.create(address="ready")
        held = claim(Parcel)
        text = admin_client.get(LIST).content.decode()
        assert "parcel to ready" in text
        assert f"worker {held.operations.worker_id}, 59 s left" in text or "1 m left" in text
        assert "running" in text

    @pytest.mark.parametrize(
        ("written", "words"),
        [
            ({}, "now"),
            ({"state": "sent"}, "\N{EM DASH}"),
            ({"state": "gone"}, "never: unknown state"),
            ({"state_crashes": 3, "state_ready": False}, "never: quarantined"),
        ],
    )
    def test_says_when_a_row_is_attempted(self, admin_client: Client, written: dict[str, Any], words: str) -> None:
        set_columns(Parcel.objects.create(), **written)
        assert f'<td class="field-stator_next">{words}</td>' in admin_client.get(LIST).content.decode()

    @pytest.mark.parametrize(
        "condition", ["ready", "leased", "failing", "quarantined", "stuck", "overdue", "unknown", "nonsense"]
    )
    def test_filters_by_condition(self, admin_client: Client, condition: str) -> None:
        rows = {name: Parcel.objects.create(address=f"{name}-row") for name in
                ("ready", "leased", "failing", "quarantined", "stuck", "overdue", "unknown", "calm")}  # fmt: skip
        later = {"state_ready": False, "state_next_attempt": columns.after(3600)}
        set_columns(rows["calm"], state="sent", state_ready=False)
        set_columns(rows["leased"], state_claim=new_token(new_worker_id()), state_ready=False)
        set_columns(rows["failing"], state="stamped", state_failures=2, **later)
        set_columns(rows["quarantined"], state_crashes=3, state_ready=False)
        set_columns(rows["unknown"], state="gone")
        set_columns(rows["stuck"], state_changed=columns.after(-7200), **later)
        set_columns(rows["overdue"], state="stamped", state_changed=columns.after(-100))
        text = admin_client.get(LIST, {"condition": condition}).content.decode()
        found = {name for name in rows if f"parcel to {name}-row" in text}
        expected = {"ready": {"ready", "overdue"}, "failing": {"failing", "quarantined"}, "nonsense": set(rows)}
        assert found == expected.get(condition, {condition})

    def test_counts_no_further_than_it_must(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listing, "COUNTED", 3)
        monkeypatch.setattr(StatorAdmin, "list_per_page", 2)
        Parcel.objects.bulk_create([Parcel() for _ in range(5)])
        with CaptureQueriesContext(connection) as queries:
            text = admin_client.get(LIST).content.decode()
        assert "more than 3 parcels" in text
        counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
        assert counts
        assert all("LIMIT 4" in sql for sql in counts)

    def test_says_in_a_few_words_why_each_stands_where_it_is(self, admin_client: Client) -> None:
        ready, held, failing = (Parcel.objects.create() for _ in range(3))
        set_columns(failing, state_ready=False, state_failures=2, state_next_attempt=columns.after(60))
        set_columns(held, state_ready=False, state_claim=uuid4(), state_locked_until=columns.after(60))
        Parcel.objects.create(state="delivered")
        set_columns(Parcel.objects.create(), state="mislaid")
        set_columns(Parcel.objects.create(), state_ready=False, state_crashes=9)
        text = admin_client.get(LIST).content.decode()
        assert re.findall(r'field-stator_why">([^<]+)<', text) == [
            "quarantined: lost 9 leases", "unknown state", "ended", "backing off: 2 errors", "running", "ready",
        ]  # fmt: skip
