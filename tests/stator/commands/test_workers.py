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
    assert found == {"0": "alive", "1": "stopped", "2": "silent"}
    assert "testapp.errand" in run("workers")


def test_dead_worker_has_the_exit_code_that_its_successor_published():
    row = {"host": "oak", "version": "1", "models": ["testapp.errand"], "database": "default"}
    Worker.objects.create(id="1" * 12, pid=7, **row)
    raw(Worker).filter(pk="1" * 12).update(heartbeat=ago(100))
    assert "silent  " in run("workers")
    Worker.objects.create(id="2" * 12, pid=8, published={"replaced": {"pid": 7, "exit_code": -9}}, **row)
    assert "silent (exit 137, SIGKILL: out of memory?)" in run("workers")
    assert {worker["pid"]: worker["ending"] for worker in asked("workers")} == {
        7: "exit 137, SIGKILL: out of memory?",
        8: "",
    }
