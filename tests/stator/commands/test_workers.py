"""``stator workers``: the worker processes, and how each ended."""

import pytest

from stator.models import Worker
from tests.stator.commands.errands import asked, run
from tests.stator.making import ago, raw

pytestmark = pytest.mark.django_db(transaction=True)


def test_workers_are_listed_with_what_became_of_them():
    assert asked("workers") == []
    assert "No worker was active" in run("workers")
    for number, values in enumerate([{}, {"stopped": ago(5)}, {}]):
        Worker.objects.create(
            id=str(number) * 12, host="oak", pid=7, version="1", models=["testapp.errand"], database="default", **values
        )
    raw(Worker).filter(pk="2" * 12).update(heartbeat=ago(100))
    found = {worker["id"][0]: worker["status"] for worker in asked("workers", "--database", "default")}
    assert found == {"0": "alive", "1": "stopped", "2": "gone"}
    assert "testapp.errand" in run("workers")
