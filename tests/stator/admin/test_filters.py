"""Lists of rows: columns, counts that end early, and filters, which find the rows that are meant, few or many."""

import re
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.admin import StatorAdmin, filters, listing
from stator.querysets import OperatorQuerySet
from stator.rows import columns
from stator.survey.conditions import CONDITIONS
from tests.queries import analyze
from tests.stator.admin.requests import LIST, claim, set_columns
from tests.stator.making import ago, raw
from tests.testapp.operators import Parcel

STATES = ("packed", "sent", "Zebra", "lost")
DUE = (None, -3600, 800 * 86400)


@pytest.fixture
def parcels(db: None) -> int:
    """One of each kind that there can be: of every state, ready, held or neither, whenever due, old and new."""
    kinds = list(product(STATES, ("ready", "held", "resting"), DUE, (-7200, -1), (0, 3)))
    rows = Parcel.objects.bulk_create(Parcel(address="somewhere") for _ in kinds)
    for parcel, (state, place, due, changed, troubles) in zip(rows, kinds, strict=True):
        parcel.state, parcel.state_ready = state, place == "ready"
        parcel.state_crashes = parcel.state_failures = troubles
        parcel.state_claim = uuid4() if place == "held" else None
        parcel.state_locked_until = ago(-60) if place == "held" else None
        parcel.state_next_attempt, parcel.state_changed = None if due is None else ago(-due), ago(-changed)
    names = ["ready", "crashes", "failures", "claim", "locked_until", "next_attempt", "changed"]
    raw(Parcel).bulk_update(rows, ["state", *(f"state_{name}" for name in names)])
    return len(kinds)


def listed(client: Client, address: str) -> set[Any]:
    """The keys of all rows of a list."""
    response = client.get(address)
    assert response.status_code == 200
    return set(response.context["cl"].queryset.values_list("pk", flat=True))


def test_list_has_the_rows_that_are_meant(admin_client: Client, parcels: int, monkeypatch: Any) -> None:
    packed = set(raw(Parcel).filter(state="packed").values_list("pk", flat=True))
    for few in (0, 2000):
        monkeypatch.setattr(filters, "FEW", few)
        for name, (_, rows, _) in CONDITIONS.items():
            meant = set(rows(OperatorQuerySet(Parcel)).values_list("pk", flat=True))
            assert 0 < len(meant) < parcels
            assert listed(admin_client, f"{LIST}?condition={name}") == meant, name
            if few:
                assert listed(admin_client, f"{LIST}?condition={name}&state=packed") == meant & packed, name


@pytest.mark.postgresql
def test_few_stuck_rows_among_many_are_found_by_indexes(transactional_db: None) -> None:
    """Without the parts the planner walks all of the table for the first page."""
    Parcel.objects.bulk_create(Parcel(state="delivered", state_ready=False) for _ in range(5000))
    Parcel.objects.bulk_create(Parcel(state="packed", state_ready=False) for _ in range(2000))
    analyze(Parcel)
    for name in ("stuck", "overdue", "unknown"):
        for part in CONDITIONS[name][2](OperatorQuerySet(Parcel)):
            assert "Seq Scan" not in part.values_list("pk")[:2001].explain(), part.query


def test_few_failing_rows_among_many_are_found_by_indexes(transactional_db: None) -> None:
    Parcel.objects.bulk_create(Parcel(state="delivered", state_ready=False) for _ in range(5000))
    some = Parcel.objects.bulk_create(Parcel(state="packed", state_ready=False) for _ in range(6))
    raw(Parcel).filter(pk__in=[parcel.pk for parcel in some[:3]]).update(state_failures=1)
    raw(Parcel).filter(pk__in=[parcel.pk for parcel in some[3:]]).update(state_crashes=3)
    analyze(Parcel)
    for name in ("failed", "quarantined"):
        rows = getattr(OperatorQuerySet(Parcel), name)().order_by()
        assert rows.count() == (6 if name == "failed" else 3)
        # As the list looks for few, as it looks for its first page among many, and as they are counted.
        for asked in (rows.values_list("pk")[:2001], rows.values("pk")):
            plan = asked.explain()
            assert "st_crash_" in plan, plan
            assert ("st_fail_" in plan) == (name == "failed"), plan
        page = Parcel.objects.filter(pk__in=rows.values("pk")).order_by("-pk")[:100].explain()
        assert "st_crash_" in page, page


@pytest.mark.postgresql
def test_few_rows_of_a_state_among_many_are_found_by_indexes(transactional_db: None, admin_client: Client) -> None:
    Parcel.objects.bulk_create(Parcel(state="delivered", state_ready=False) for _ in range(5000))
    Parcel.objects.bulk_create(Parcel(state="sent", state_ready=False) for _ in range(5))
    analyze(Parcel)
    found = admin_client.get(f"{LIST}?state__exact=sent").context["cl"].queryset
    assert len(found) == 5
    plan = found.order_by()[:10_001].explain()
    assert "Seq Scan" not in plan, plan


class TestList:
    def test_shows_what_holds_a_row(self, admin_client: Client) -> None:
        Parcel.objects.create(address="ready")
        held = claim(Parcel)
        text = admin_client.get(LIST).content.decode()
        assert "parcel to ready" in text
        assert f"worker {held.operations.worker_id}, 59 s left" in text or "1 m left" in text
        assert "running" in text

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
        nexts = re.findall(r'field-stator_next">([^<]+)<', text)
        none = "\N{EM DASH}"
        assert nexts[:3] + nexts[-1:] == ["never: quarantined", "never: unknown state", none, "now"]
