"""Helpers for a project's tests: time passes for tasks, schedules and rates."""

from datetime import timedelta

import pytest

from stator.testing import drain
from tasks.models import Schedule, Task
from tasks.testing import advance
from tests.stator.making import row
from tests.tasks.making import claimed, make_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def schedule():
    made = Schedule.objects.create(name="report", queue=make_queue(), action="report", period=3600)
    drain(Schedule)
    return row(made)


def test_ticks_come_closer(schedule):
    planned, nominal = schedule.planned, schedule.nominal
    advance(1800)
    moved = row(schedule)
    assert (planned - moved.planned, nominal - moved.nominal) == (timedelta(seconds=1800), timedelta(seconds=1800))
    drain(Schedule)
    assert not Task.objects.exists()
    advance(3600)
    drain(Schedule)
    assert Task.objects.get().metadata["tick"] == 0


def test_task_that_is_not_due_comes_due():
    queue = make_queue()
    queue.publish("transcode", invisible_for=3600)
    advance(1800)
    assert claimed(queue) == []
    advance(3600)
    assert claimed(queue) == ["transcode"]
