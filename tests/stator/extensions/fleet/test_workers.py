"""``stator workers``."""

import pytest

from stator.models import Worker
from tests.stator.commands.errands import asked, run
from tests.stator.making import ago, raw

pytestmark = pytest.mark.django_db(transaction=True)


def test_workers_are_listed_with_what_became_of_them():
    assert (asked("workers"), "No worker was active" in run("workers")) == ([], True)
    row = {"host": "oak", "version": "1", "models": ["testapp.errand"], "database": "default"}
    replaced = {"replaced": {"pid": 2, "exit_code": -9}}
    for pid, values in enumerate(({}, {"stopped": ago(5)}, {}, {}, {"published": replaced})):
        Worker.objects.create(id=str(pid) * 12, pid=pid, **row, **values)
    raw(Worker).filter(pid__in=(2, 3)).update(heartbeat=ago(100))
    told = {each["pid"]: (each["status"], each["ending"]) for each in asked("workers", "--database", "default")}
    killed = "exit 137, SIGKILL: out of memory?"
    assert told == {0: ("alive", ""), 1: ("stopped", ""), 2: ("silent", killed), 3: ("silent", ""), 4: ("alive", "")}
    assert f"silent ({killed})" in run("workers")


def test_workers_that_cannot_be_read_are_not_said_to_be_none(monkeypatch):
    monkeypatch.setattr(Worker._meta, "db_table", "gone")
    told = run("workers")
    assert "No worker was active" not in told
    assert "error    stator.Worker: not everything is shown: " in told
    assert asked("workers") == []
