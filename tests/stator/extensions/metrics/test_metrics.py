"""The endpoint with metrics of models and workers."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from stator.exceptions import EventRefused
from stator.metrics import gauges
from stator.models import Worker
from tests.stator.making import ago, change, put
from tests.testapp.approvals import Expense
from tests.testapp.operators import Parcel

TOKEN = "a-token-of-at-least-thirty-two-bytes"
METRICS = "/stator/metrics/"
# Counted by the process, not read from the database.
REFUSED = "stator_events_refused_total"

pytestmark = pytest.mark.django_db


@pytest.fixture
def token(settings: Any) -> None:
    settings.STATOR = {"TOKEN": TOKEN}


def figures(client: Client) -> dict[str, float]:
    response = client.get(METRICS, headers={"Authorization": f"Bearer {TOKEN}"})
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = (line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


@pytest.mark.usefixtures("token")
class TestMetrics:
    def test_metrics_have_figures_of_each_model(self, client: Client) -> None:
        put(Parcel, state_changed=ago(8000))
        put(Parcel, state_ready=False, state_crashes=3)
        put(Parcel, state="sent", state_ready=False)
        found = figures(client)
        of = '{model="testapp.parcel"}'
        assert {found[f"{name}{of}"] for name in ("stator_ready", "stator_stuck", "stator_quarantined")} == {1}
        assert found[f"stator_unknown{of}"] == 0
        change(put(Parcel, state_ready=False), state="gone")
        assert figures(client)[f"stator_unknown{of}"] == 1
        assert 8000 <= found[f"stator_oldest_ready_seconds{of}"] < 8600
        assert found['stator_objects{model="testapp.parcel",state="packed"}'] == 2
        assert found['stator_objects{model="testapp.parcel",state="sent"}'] == 1
        assert found['stator_oldest_ready_seconds{model="testapp.letter"}'] == 0

    def test_metrics_have_what_waits_for_events_and_what_was_sent(self, client: Client) -> None:
        put(Expense)
        put(Expense).stator.send("reject", by="ben")
        found = figures(client)
        of = '{event="reject",model="testapp.expense"}'
        assert (found[f"stator_awaiting_event{of}"], found[f"stator_events{of}"]) == (1, 1)
        with pytest.raises(EventRefused):
            put(Expense).stator.send("hurry")
        with pytest.raises(EventRefused):
            put(Expense).stator.send("mistyped")
        before, found = found, figures(client)
        for name in ("hurry", "unknown"):
            of_refused = f'{REFUSED}{{event="{name}",model="testapp.expense"}}'
            assert found[of_refused] == before.get(of_refused, 0) + 1
        # Workers attempt these objects anyway.
        assert 'stator_awaiting_event{event="hurry",model="testapp.expense"}' not in found

    def test_metrics_have_figures_of_workers(self, client: Client) -> None:
        given = {"host": "h", "pid": 1, "version": "1", "database": "default"}
        Worker.objects.create(id="a", lost=2, **given)
        Worker.objects.create(id="b", lost=3, heartbeat=ago(500), **given)
        found = figures(client)
        assert found['stator_workers{database="default",status="alive"}'] == 1
        assert found['stator_workers{database="default",status="silent"}'] == 1
        assert found['stator_workers{database="default",status="stopped"}'] == 0
        assert found['stator_lost_leases{database="default"}'] == 5

    def test_are_all_explained(self, client: Client) -> None:
        found = figures(client)
        assert {re.match(r"\w+", name)[0] for name in found} <= {*gauges(), REFUSED}  # type: ignore[index]
        if connection.vendor == "postgresql":
            assert found['stator_oldest_transaction_seconds{database="default"}'] >= 0

    def test_need_the_token_and_are_only_read(self, client: Client, settings: Any) -> None:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            assert client.get(METRICS, headers=headers).status_code == 404
        assert client.post(METRICS, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405
        settings.STATOR = {}
        assert client.get(METRICS, headers={"Authorization": "Bearer "}).status_code == 404
