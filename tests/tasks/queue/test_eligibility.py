"""Which tasks a worker process claims: those of which the code here has the action, for the queue that they are in."""

from typing import Any

import pytest

from stator.models import Report
from stator.testing import drain
from tasks.models import Queue, Task

pytestmark = pytest.mark.django_db


def make(action: str, queue: str, *, elsewhere: bool = True, **columns: Any) -> Task:
    found, _ = Queue.objects.get_or_create(name=queue, defaults={"actions_elsewhere": elsewhere})
    return Task.objects.create(queue=found, action=action, **columns)


class TestActionsOfQueues:
    """The action ``only-here`` is for the queue ``special`` alone; ``resize`` is for every queue."""

    def test_a_task_of_other_programs_is_left_to_them_whatever_functions_of_its_name_are_here(self) -> None:
        task = make("only-here", "for-programs", max_attempts=1)
        assert drain(Task) == 0
        task.refresh_from_db()
        assert (task.state, task.state_ready, task.state_attempts, Report.objects.count()) == ("pending", True, 0, 0)

    def test_an_action_that_is_not_here_is_left_to_workers_that_have_it(self) -> None:
        for action in ("only-here", "of a newer release"):
            task = make(action, "ours", elsewhere=False)
            assert drain(Task) == 0
            task.refresh_from_db()
            assert (task.state, task.state_attempts, task.state_ready) == ("pending", 0, True)
        assert not Report.objects.exists()

    def test_of_an_exclusive_queue_a_task_for_newer_code_keeps_its_place_before_later_ones(self) -> None:
        queue = Queue.objects.create(name="films", kind=Queue.Kind.EXCLUSIVE, exclusive_key="title")
        newer = Task.objects.create(queue=queue, action="newer", priority=1, exclusive_value="a")
        later = Task.objects.create(queue=queue, action="fetch", priority=2, exclusive_value="a", data="x")
        other = Task.objects.create(queue=queue, action="fetch", priority=3, exclusive_value="b", data="x")
        assert drain(Task) == 1
        states = [Task.objects.get(pk=each.pk).state for each in (newer, later, other)]
        assert states == ["pending", "pending", "completed"]

    def test_of_an_exclusive_queue_a_task_for_programs_only_holds_up_none_of_ours(self) -> None:
        queue = Queue.objects.create(name="films", kind=Queue.Kind.EXCLUSIVE, exclusive_key="title")
        values = {"queue": queue, "action": "fetch", "exclusive_value": "a", "data": "x"}
        theirs = Task.objects.create(priority=1, elsewhere_only=True, **values)
        ours = Task.objects.create(priority=2, **values)
        assert drain(Task) == 1
        assert [Task.objects.get(pk=each.pk).state for each in (theirs, ours)] == ["pending", "completed"]
