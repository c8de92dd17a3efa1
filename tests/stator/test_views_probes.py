"""Health and readiness: what each probe asks."""

from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

pytestmark = pytest.mark.django_db


HEALTH, READY = "/stator/health/", "/stator/ready/"


def test_health_asks_no_database(client: Client, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(0):
        response = client.get(HEALTH)
    assert (response.status_code, response.text) == (200, "alive\n")
    assert "no-store" in response["Cache-Control"]


def test_readiness_is_that_of_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (client.get(READY).status_code, client.get(READY).text) == (200, "ready\n")

    def gone(*args: Any) -> Any:
        raise OperationalError("password=secret host=db")

    monkeypatch.setattr("stator.rows.workers.WorkerQuerySet.exists", gone)
    response = client.get(READY)
    assert (response.status_code, response.text) == (503, "not\n")
