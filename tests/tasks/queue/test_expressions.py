"""Query expressions that Django has not for every database."""

from datetime import timedelta

import pytest
from django.db.models import F, OuterRef, Value
from django.db.models.functions import Now

from tasks.models import Queue, Task
from tasks.queue.expressions import is_any
from tasks.rows.clock import Later
from tests.stator.making import raw
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("seconds", [0.25, 90.0, -3600.0])
def test_moment_is_so_many_seconds_after_another(queue, seconds):
    task = queue.publish("resize").task
    raw(Task).filter(pk=task.pk).update(lease=seconds)
    later, created = (
        raw(Task).annotate(later=Later(F("lease"), F("created"))).values_list("later", "created").get(pk=task.pk)
    )
    assert abs(later - created - timedelta(seconds=seconds)) < timedelta(milliseconds=2)


def test_moment_is_counted_from_the_clock_of_the_database(queue):
    queue.publish("resize")
    assert raw(Task).filter(created__lte=Later(1), created__gte=Later(-60)).exists()
    assert not raw(Task).filter(created__gte=Later(60)).exists()
    later, now = raw(Task).annotate(later=Later(Value(60.0)), now=Now()).values_list("later", "now").get()
    assert later > now


def test_queues_with_any_such_row_are_found(queue):
    make_queue("empty")
    queue.publish("resize")
    rows = raw(Task).filter(queue=OuterRef("pk"))
    assert [found.name for found in Queue.objects.filter(is_any(rows))] == ["encode"]
    assert [found.name for found in Queue.objects.filter(is_any(rows.filter(action="other")[:1]))] == []
