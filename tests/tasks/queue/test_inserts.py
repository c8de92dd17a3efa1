"""Tasks get their keys on databases that return none of several rows, such as MySQL."""

import pytest
from django.db import OperationalError, connection

from stator.db import inserts
from tasks.models import Task
from tasks.queue.publishing import PublishOutcome
from tests.stator.worker.fakes import lock_timeout
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db


def test_tasks_and_parts_are_published(monkeypatch):
    monkeypatch.setattr(type(connection.features), "can_return_rows_from_bulk_insert", False)
    queue = make_queue()
    messages = [{"action": "resize", "data": 1}, {"action": "resize", "data": 2, "worker_count": 2}]
    alone, shared = [published.task for published in queue.publish_many(messages)]
    assert (alone.data, shared.data) == (1, 2)
    assert set(Task.objects.exclude(whole=None).values_list("whole", flat=True)) == {shared.pk}


@pytest.mark.postgresql
def test_insert_that_loses_to_another_transaction_is_made_again_unless_it_breaks_the_callers(monkeypatch):
    def lose(*args):
        raise lock_timeout()

    queue = make_queue()
    monkeypatch.setattr(inserts, "_send", lose)
    assert queue.publish("resize", 1, key="a").outcome == PublishOutcome.INSERTED
    assert Task.objects.get().key == "a"
    # Without a key there is no savepoint.
    with pytest.raises(OperationalError):
        queue.publish("resize", 1)
