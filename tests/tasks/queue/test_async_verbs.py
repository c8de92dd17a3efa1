"""The verbs of queues, tasks and claims for asynchronous code do what the others do."""

import pytest
from asgiref.sync import async_to_sync

from tasks.models import Task
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)


def test_async_code_publishes_claims_and_ends():
    async_to_sync(_go_through)(make_queue(max_attempts=1))
    assert [task.status for task in Task.objects.order_by("pk")] == [
        "completed",
        "pending",
        "canceled",
        "pending",
        "canceled",
    ]
    assert Task.objects.earliest("pk").result == {"ok": True}


async def _go_through(queue):
    await queue.apause(publish=True)
    await queue.aresume()
    assert (await queue.apublish("a", {"n": 1}, key="k")).outcome == "inserted"
    many = await queue.apublish_many([{"action": "a", "key": "k"}, *[{"action": "b"}] * 4])
    assert [each.outcome for each in many] == ["matched", *["inserted"] * 4]
    tasks = [each.task for each in many]
    ends = (("aresolve", {"ok": True}), ("afail", "no"), ("acancel", "no"), ("arelease", "no"))
    for task, (end, given) in zip(tasks, ends, strict=False):
        (claim,) = await queue.aclaim(worker="bot-1")
        assert claim.task == task
        await claim.averify()
        await claim.aheartbeat()
        await getattr(claim, end)(given)
    await tasks[1].arequeue()
    await tasks[3].arequeue()
    await tasks[4].acancel()
