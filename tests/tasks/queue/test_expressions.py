"""Query expressions that Django has not for every database."""

from datetime import timedelta

import pytest
from django.db.models import F

from tasks.models import Task
from tasks.rows.clock import Later
from tests.stator.making import raw

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("seconds", [0.25, 90.0, -3600.0])
def test_moment_is_so_many_seconds_after_another(queue, seconds):
    task = queue.publish("resize").task
    raw(Task).filter(pk=task.pk).update(lease=seconds)
    later, created = (
        raw(Task).annotate(later=Later(F("lease"), F("created"))).values_list("later", "created").get(pk=task.pk)
    )
    assert abs(later - created - timedelta(seconds=seconds)) < timedelta(milliseconds=2)
