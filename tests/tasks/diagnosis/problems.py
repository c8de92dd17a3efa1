"""Problems of queues and schedules, as the overview has them."""

from stator.extensions.problems.kinds import problems_in
from stator.extensions.problems.survey import survey
from stator.models import Worker
from tasks.models import Queue, Schedule, Task
from tests.stator.making import ago


def found():
    return problems_in(survey("default", [Task, Schedule]))


def by_code():
    return {problem.code: problem for problem in found()}


def make_nightly():
    """A queue with a live worker."""
    Worker.objects.create(
        id="a" * 12, host="h", pid=1, version="1", models=["tasks.task", "tasks.schedule"], database="default",
        published={}, started=ago(7200),
    )  # fmt: skip
    return Queue.objects.create(name="nightly", actions_elsewhere=True)
