"""Checks for models without a live worker."""

import pytest

from tests.stator.commands.doctor.examining import examined
from tests.stator.making import ago, put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_missing_worker_is_a_warning_until_something_waits_for_one():
    code, found = examined()
    assert (code, found["workers"]["level"]) == (0, "warn")
    assert examined("--strict")[0] == 1
    put(Errand)
    code, found = examined()
    assert (code, found["no worker"]["level"]) == (1, "fail")
    # One fact is one finding; the other models are another.
    assert "testapp.Errand" not in found["workers"]["message"]
    assert found["no worker"]["message"].startswith("testapp.Errand: 1 waits, but no live worker serves it")
    assert found["no worker"]["remedy"] == "start manage.py runstator (manage.py runstator)"


def test_due_rows_wait_for_a_worker_too():
    put(Errand, state_ready=False, state_next_attempt=ago(5))
    code, found = examined()
    assert (code, found["no worker"]["level"]) == (1, "fail")
