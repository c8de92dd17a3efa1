"""The table of workers: written at the start, refreshed while the process lives, closed at its end."""

import signal
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from stator.db import own_tables
from stator.db.interface import new_worker_id
from stator.models import Worker
from stator.rows.workers import WORKER_ALIVE, live_workers, name_of
from stator.worker.presence import Presence
from tests.processes import wait_until
from tests.stator.making import operations_of, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)

FIGURES = {"running": 1, "handled": 2, "lost": 3}


@pytest.fixture
def presence():
    return Presence(new_worker_id(), [operations_of(Errand)], lambda: dict(FIGURES))


def test_worker_whose_row_comes_after_its_first_claim_has_its_name_then():
    worker = new_worker_id()
    assert name_of(worker, "default") == worker
    Worker.objects.create(id=worker, name="bot-1", host="h", pid=1, version="1", models=[])
    assert name_of(worker, "default") == "bot-1"


def test_silent_worker_is_taken_for_dead(presence):
    presence.show()
    raw(Worker).update(heartbeat=Now() - timedelta(seconds=WORKER_ALIVE + 1))
    assert live_workers("default") == []


def test_rows_of_workers_that_are_gone_are_pruned_after_a_day(presence):
    presence.show()
    raw(Worker).create(id="0" * 12, host="ash", pid=1, version="1", database="default")
    raw(Worker).filter(pk="0" * 12).update(heartbeat=Now() - timedelta(hours=25))
    assert own_tables.prune("default", 10, errors=100, history=100, stats=100) == 1
    assert Worker.objects.count() == 1


@pytest.mark.fault
def test_processes_appear_and_disappear(worker_process):
    with worker_process("testapp.Errand") as worker:
        wait_until(lambda: Worker.objects.live().filter(pid=worker.pid).exists())
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert Worker.objects.get().stopped is not None
