"""A worker of one database runs the tasks there, and does the chores there."""

import pytest

from stator.runner import StatorRunner
from tasks.models import Queue, Task
from tests.stator.making import raw
from tests.tasks.making import claim_one, found_claim

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_worker_of_another_database_runs_its_tasks_and_does_its_chores() -> None:
    Queue(name="encode", actions_elsewhere=True).save(using="other")
    queue = raw(Queue, "other").get()
    queue.publish("echo", retention=0).task.cancel()
    queue.publish("thumbnail")
    claim = claim_one(queue)
    queue.publish_many([{"action": "echo", "data": [number]} for number in range(6)])
    # Twice: deletion leaves locked rows to the next pass, and InnoDB also locks rows beside those that are written.
    for _ in range(2):
        StatorRunner([Task], until_idle=True, database="other").run()
    found_claim(claim.task.pk, claim.token, using="other").resolve(7)
    assert [task.result for task in raw(Task, "other").order_by("pk")] == [7, *([[number]] for number in range(6))]
    assert not Task.objects.exists()
