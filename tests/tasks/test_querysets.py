"""Tasks are found by status, age and worker, and many are canceled and requeued."""

import pytest
from asgiref.sync import async_to_sync
from django.db.models import QuerySet

from stator.models import History
from tasks.exceptions import TaskError
from tasks.models import Task
from tests.tasks.making import STATUSES, claim_one, fresh, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def test_statuses_are_found_and_agree_with_those_of_objects(queue):
    for number, status in enumerate(STATUSES):
        make_task(queue, status, priority=-number)
    queue.publish("shared", worker_count=2)  # tasks.extensions.shared
    queue.publish("later", worker_count=2, invisible_for=60)  # tasks.extensions.shared
    for status in STATUSES:
        found = set(Task.objects.with_status(status))
        assert found == {task for task in Task.objects.all() if task.status == status}
        assert found
    assert Task.objects.with_status("running", "errored").count() == 2
    with pytest.raises(TaskError, match="'done' is not a status"):
        Task.objects.with_status("done")


def test_tasks_are_found_by_age_and_worker(queue):
    queue.publish("a")
    claim = claim_one(queue)
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-1")) == [claim.task]
    claim.release()
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-2")) == []
    assert list(Task.objects.had_by("bot-1")) == [claim.task]
    assert not Task.objects.older_than(60)
    QuerySet(Task).update(created="2020-01-01T00:00:00Z")
    assert Task.objects.older_than(60).get() == claim.task


def test_many_are_canceled_and_requeued_by_async_code(queue):
    task = queue.publish("a").task
    assert async_to_sync(Task.objects.filter(pk=task.pk).acancel)("by mistake", actor="ada") == 1
    assert fresh(task).status == "canceled"
    dead = make_task(queue, "errored")
    assert async_to_sync(queue.tasks.filter(pk=dead.pk).arequeue)("mended", actor="ada", per_minute=60).count == 1
    assert fresh(dead).status in ("pending", "invisible")
    assert [act.reason for act in History.objects.filter(actor="ada").order_by("pk")] == ["by mistake", "mended"]
