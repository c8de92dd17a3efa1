"""Tasks get their keys on databases that return none of several rows, such as MySQL."""

import pytest
from django.db import connection

from tasks.models import Task
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db


def test_tasks_and_parts_are_published(monkeypatch):
    monkeypatch.setattr(type(connection.features), "can_return_rows_from_bulk_insert", False)
    queue = make_queue()
    messages = [{"action": "resize", "data": 1}, {"action": "resize", "data": 2, "worker_count": 2}]
    alone, shared = [published.task for published in queue.publish_many(messages)]
    assert (alone.data, shared.data) == (1, 2)
    assert set(Task.objects.exclude(whole=None).values_list("whole", flat=True)) == {shared.pk}
