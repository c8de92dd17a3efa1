"""Two releases side by side: who is told of actions that only one has, and what waits for the worker that has them."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError

from stator.models import Report, Worker
from stator.testing import drain
from tasks.extensions.problems.versions import versions
from tasks.models import Queue, Schedule
from tasks.queue.serving import registered
from tasks.testing import advance
from tests.stator.making import ago

pytestmark = pytest.mark.django_db(transaction=True)


def live(number, actions, *, models=("tasks.task",), queues=None):
    """A live worker process with these actions, by queue."""
    told = {} if actions is None else {"actions": actions}
    return Worker.objects.create(
        id=f"{number:012x}", host="oak", pid=number, version="1", models=[*models], database="default",
        # Alive for long enough on a crowded machine.
        heartbeat=ago(-600), published={"tasks": {**told, "queues": queues}},
    )  # fmt: skip


def with_more(*names, queue=""):
    """The actions of a newer release."""
    actions = registered()
    return {**actions, queue: sorted([*actions.get(queue, []), *names])}


def told():
    survey = SimpleNamespace(using="default")
    return [f"{each.where}: {each.sentence}." for each in versions(survey)]


def test_fleet_of_one_release_is_no_alarm(django_assert_max_num_queries):
    live(1, registered())
    # Limited by choice, without tasks by choice, with too many actions to publish, and with what is no list of them.
    live(2, registered(), queues=["mail"])
    live(3, with_more("newer"), models=["testapp.errand"])
    live(4, None)
    live(5, 7)
    with django_assert_max_num_queries(1):
        assert told() == []


def test_actions_that_only_some_workers_have_are_named_with_them():
    live(1, registered())
    live(2, with_more("newer"))
    live(3, with_more("newer"))
    live(4, with_more("echo", queue="encode"))
    assert told() == [
        "tasks.Task: 3 sets of actions are in use, so a process leaves alone what only others know: oak/2, oak/3 know "
        "newer; oak/4 knows echo (queue encode); oak/1, "
        "this process know none of these."
    ]


def test_tick_waits_for_the_worker_that_has_the_action_of_its_task():
    queue = Queue.objects.create(name="ticks", actions_elsewhere=False)
    given = {"name": "s", "queue": queue, "action": "newer", "period": 60.0, "overlap": "allow"}
    with pytest.raises(ValidationError, match="no action 'newer' is registered for queue ticks"):
        Schedule.objects.create(**given)
    # A process that has the action may have given it.
    schedule = Schedule.objects.create(**{**given, "action": "echo"})
    Schedule.objects.update(action="newer")
    live(2, with_more("newer"), models=["tasks.task", "tasks.schedule"])
    drain(Schedule)
    advance(61)
    drain(Schedule)
    schedule.refresh_from_db()
    assert (schedule.tick_index, schedule.state_failures, queue.tasks.count()) == (0, 0, 0)
    [report] = Report.objects.all()
    assert (report.error, report.message.endswith("another worker has it, and will fire the tick")) == ("", True)

    # If no live worker has it either, it is an error, which somebody has to mend.
    Worker.objects.update(stopped=ago(1))
    advance(3)
    drain(Schedule)
    schedule.refresh_from_db()
    assert schedule.state_failures >= 1
