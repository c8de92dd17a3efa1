"""Attempts of tasks that have ended, whose own count began again."""

import pytest

from tasks.queue.attempt_counts import attempts_of
from tests.stator.making import expire
from tests.tasks.making import claim_one, fresh

pytestmark = pytest.mark.django_db(transaction=True)


def test_completed_task_has_the_attempts_that_it_took(queue):
    task = queue.publish("resize", max_attempts=3).task
    claim_one(queue)
    expire(task)
    claim_one(queue, "bot-2").resolve(1)
    ended = fresh(task)
    assert ended.status == "completed"
    assert attempts_of([ended], "default") == {task.pk: 2}
