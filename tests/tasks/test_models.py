"""What a task and a claim show of themselves."""

import pytest

from tasks.models import Run
from tests.stator.making import expire
from tests.tasks.making import claim_one, fresh

pytestmark = pytest.mark.django_db(transaction=True)


def test_workers_that_gave_up_or_lost_the_task_are_named_once_and_in_order(queue):
    task = queue.publish("resize", max_attempts=10).task
    claim_one(queue, "bot-2").release()
    claim_one(queue, "bot-1")
    expire(task)
    claim_one(queue, "bot-3")
    assert fresh(task).rejected_by == ["bot-2", "bot-1"]
    assert [run.timed_out for run in Run.objects.order_by("pk")] == [False, True, False]
