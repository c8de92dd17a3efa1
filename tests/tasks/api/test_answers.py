"""Answers with tasks that are not validated: they have the form of their schemas."""

import pytest

from tasks.api import answers
from tasks.api.schemas import TaskOut
from tests.tasks.making import STATUSES, fresh, make_queue, make_task

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", STATUSES)
def test_answer_without_validation_has_the_form_of_the_schema(status):
    queue = make_queue(lease=3)
    options = {"key": "image-7", "metadata": {"title": "abc"}, "lease": 2, "max_attempts": 3, "worker_ids": ["maker"]}
    task = make_task(queue, status, **options)
    shared = queue.publish("resize", worker_count=2).task
    for each in (fresh(task), fresh(shared)):
        shown = answers.task_out(each)
        assert TaskOut(**shown).dict() == shown
        assert list(shown) == list(TaskOut.model_fields)
