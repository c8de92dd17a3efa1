"""Troubles of queues and schedules, as the overview has them."""

from stator.models import Worker
from stator.overview.survey import survey
from stator.overview.troubles import troubles_in
from tasks.models import Queue, Schedule, Task


def found():
    return troubles_in(survey("default", [Task, Schedule]))


def by_code():
    return {trouble.code: trouble for trouble in found()}


def make_nightly():
    """A queue with a live worker."""
    Worker.objects.create(
        id="a" * 12, host="h", pid=1, version="1", models=["tasks.task", "tasks.schedule"], database="default",
        published={},
    )  # fmt: skip
    return Queue.objects.create(name="nightly", actions_elsewhere=True)
