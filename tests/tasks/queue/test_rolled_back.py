"""After a rollback batches, tasks, claims, queues and schedules in memory are as before, and can be used again."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from tasks.exceptions import PublishRefused
from tasks.models import Batch, Queue, Schedule, Task
from tests.tasks.making import claim_one, fresh, make_task

pytestmark = pytest.mark.django_db(transaction=True)


class Undone(Exception):
    """Rolls a transaction back."""


def in_a_transaction(call, *given):
    with suppress(Undone), transaction.atomic():
        call(*given)
        raise Undone


def to_a_savepoint(call, *given):
    with transaction.atomic():
        in_a_transaction(call, *given)


def attributes(holder: Any) -> dict[str, Any]:
    state = vars(holder).get("_state")
    saved = (not state.adding, state.db) if state else ()
    return {name: value for name, value in vars(holder).items() if name != "_state"} | {"is saved": saved}


def two_tasks():
    return [{"action": "resize"}, {"action": "resize"}]


def claim_of_a_task(queue):
    make_task(queue)
    return claim_one(queue)


def batch_with_a_dead_letter(queue):
    batch = Batch()
    task = queue.publish("resize", batch=batch, max_attempts=1).task
    claim_one(queue).fail("no")
    assert fresh(task).status == "errored"
    return batch


CALLS = {
    "publish in a new batch": (lambda queue: Batch(on_done="report"), lambda batch, queue: queue.publish_many(
        two_tasks(), batch=batch)),
    "publish in a new batch with a key": (lambda queue: Batch(key="import 7"), lambda batch, queue: queue.publish(
        "resize", batch=batch)),
    "begin a batch": (lambda queue: Batch(), lambda batch, queue: batch.begin(queue)),
    "close a batch": (lambda queue: Batch.open(queue), lambda batch, queue: batch.close()),
    "cancel a batch": (lambda queue: Batch.open(queue), lambda batch, queue: batch.cancel()),
    "requeue a batch": (batch_with_a_dead_letter, lambda batch, queue: batch.requeue()),
    "cancel a task": (make_task, lambda task, queue: task.cancel()),
    "requeue a task": (lambda queue: make_task(queue, "errored"), lambda task, queue: task.requeue()),
    "change a task": (make_task, lambda task, queue: task.change(priority=7)),
    "pause a queue": (lambda queue: queue, lambda _, queue: queue.pause(claim=True, reason="a leak")),
    "resolve a claim": (claim_of_a_task, lambda claim, queue: claim.resolve(7)),
    "hand back a claim": (claim_of_a_task, lambda claim, queue: claim.hand_back()),
    "send a heartbeat": (claim_of_a_task, lambda claim, queue: claim.heartbeat(600)),
    "fail a claim": (claim_of_a_task, lambda claim, queue: claim.fail("no")),
    "resolve many claims": (claim_of_a_task, lambda claim, queue:
        queue.resolve_many({claim: 7})),
    "save a new schedule": (lambda queue: Schedule(name="daily", queue=queue, action="resize", period=3600),
        lambda schedule, queue: schedule.save()),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_object_is_as_it_was_before_and_the_call_can_be_repeated(queue, name):
    make, call = CALLS[name]
    holder = make(queue)
    before = attributes(holder)
    for undo in (in_a_transaction, to_a_savepoint):
        undo(call, holder, queue)
        assert attributes(holder) == before
    call(holder, queue)
    assert attributes(holder) != before


def test_tasks_join_their_own_batch_and_not_one_that_got_its_number(queue):
    batch = Batch(on_done="report")
    in_a_transaction(lambda: queue.publish_many(two_tasks(), batch=batch))
    others = [Batch.open(queue) for _ in range(2)]
    queue.publish_many(two_tasks(), batch=batch)
    assert [other.counts()["total"] for other in others] == [0, 0]
    assert batch.counts()["total"] == 2
    assert Batch.objects.get(pk=batch.pk).on_done == {"action": "report"}


def test_task_that_was_published_in_vain_is_not_another_one(queue):
    published = []
    for options in ({}, {"key": "a"}, {"worker_count": 2}):
        to_a_savepoint(lambda options=options: published.append(queue.publish("resize", **options).task))
    assert [(task.pk, task._state.adding) for task in published] == [(None, True)] * 3
    others = queue.publish_many(two_tasks())
    with pytest.raises(Exception, match="None"):
        published[0].cancel()
    assert [fresh(other.task).status for other in others] == ["pending", "pending"]


def test_existing_task_that_joined_a_batch_in_vain_is_in_none(queue):
    queue.publish("resize", key="a")
    joined = []
    in_a_transaction(lambda: joined.append(queue.publish("resize", key="a", batch=Batch()).task))
    assert joined[0].batch_id is None
    joined[0].save()
    assert fresh(joined[0]).batch_id is None


def test_batch_that_is_gone_takes_no_tasks(queue):
    batch = Batch.open(queue)
    Batch.objects.all().delete()
    with pytest.raises(PublishRefused, match="is gone; publish them in a new batch"):
        queue.publish("resize", batch=batch)
    assert not Task.objects.exists()
    assert Queue.objects.get() == queue
