"""Queues, tasks and schedules that a replica answered: what is done with them is done where the routers write."""

import pytest
from django.db import connections
from django.db.models import QuerySet

from tasks.models import Queue, Schedule, Task
from tests.stator.test_databases_replica import refuse, replica  # noqa: F401 - a fixture
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def copied(row):
    """The row, also in the replica, as if that had followed."""
    copy, there = of_primary(row), connections["other"]
    refusals, there.execute_wrappers = there.execute_wrappers, []
    copy.save_base(raw=True, force_insert=True, using="other")
    there.execute_wrappers = refusals
    return row


def of_primary(row):
    return QuerySet(type(row), using="default").get(pk=row.pk)


@pytest.fixture
def queue(replica):  # noqa: F811
    copied(make_queue())
    replica()
    return Queue.objects.get()


def test_life_of_a_task(queue):
    first = queue.publish("a", {"n": 1}, key="k").task
    assert queue.publish("a", key="k").outcome == "matched"
    assert len(queue.publish_many([{"action": "b"}, {"action": "c"}])) == 2
    for end in ("resolve", "release", "fail"):
        (claim,) = queue.claim(worker="bot-1")
        claim.verify()
        claim.heartbeat()
        getattr(claim, end)("x")
    assert of_primary(first).status == "completed"
    assert QuerySet(Task, using="default").count() == 3
    assert not QuerySet(Task, using="other").exists()
    assert queue.live_workers() == ["bot-1"]


def test_canceled_and_requeued_task(queue):
    task = queue.publish("a", max_attempts=1).task
    copied(task)
    found = Task.objects.get()
    found.cancel("not wanted")
    assert (found.status, of_primary(task).status) == ("canceled", "canceled")
    other = queue.publish("b", max_attempts=1).task
    copied(other)
    (claim,) = queue.claim(worker="bot-1")
    claim.fail("no")
    found = Task.objects.get(pk=other.pk)
    assert found.status == "pending"
    found.requeue("again")
    assert (found.status, of_primary(other).status) == ("pending", "pending")
    assert Task.objects.filter(pk=other.pk).cancel("all") == 1
    assert of_primary(other).status == "canceled"


def test_queue_and_schedule_are_paused_run_and_changed(queue):
    queue.pause(claim=True, reason="checks")
    assert (queue.claiming_paused, of_primary(queue).claim_paused) == (True, True)
    queue.resume()
    queue.lease = 7
    queue.save()
    assert (of_primary(queue).claim_paused, of_primary(queue).lease) == (False, 7)
    copied(Schedule.objects.create(name="report", queue=of_primary(queue), action="report", period=60))
    schedule = Schedule.objects.get()
    assert schedule.run_now()
    schedule.period = 30
    schedule.save()
    assert (of_primary(schedule).asked, of_primary(schedule).period) == (True, 30)
    assert schedule._state.db == Schedule.objects.select_related("queue").get().queue._state.db == "default"
