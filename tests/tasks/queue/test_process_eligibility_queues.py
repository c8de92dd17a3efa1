"""``runstator --queue``: a worker that claims from the queues that it names, and from no other."""

import pytest
from django.core.management import CommandError, call_command

from tests.processes import wait_until
from tests.tasks.making import make_queue
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tasks(transactional_db):
    """One task in each of three queues."""
    return {name: make_queue(name, actions_elsewhere=False).publish("echo", 1).task for name in ("a", "b", "c")}


def statuses(tasks):
    for task in tasks.values():
        task.refresh_from_db()
    return {name: task.status for name, task in tasks.items()}


def test_worker_claims_only_from_the_queues_that_it_names(worker_process, tasks):
    with worker_process("--queue", "a", "--queue", "c", "--until-idle") as worker:
        assert worker.wait() == 0, worker.output()
    assert statuses(tasks) == {"a": "completed", "b": "pending", "c": "completed"}, worker.output()
    with worker_process("tasks.Task", "--until-idle") as worker:
        assert worker.wait() == 0, worker.output()
    assert statuses(tasks)["b"] == "completed"


def test_each_of_several_processes_does(worker_process, tasks):
    with worker_process("tasks.Task", "--queue", "b", "--processes", "2", "--until-idle") as worker:
        assert worker.wait() == 0, worker.output()
    assert statuses(tasks) == {"a": "pending", "b": "completed", "c": "pending"}, worker.output()


def test_other_models_are_worked_on_unless_models_are_named(worker_process, tasks):
    row = Line.objects.create()
    with worker_process("tasks.Task", "--queue", "a", "--until-idle") as worker:
        assert worker.wait() == 0, worker.output()
    before = str(row.state)
    row.refresh_from_db()
    assert str(row.state) == before
    with worker_process("--queue", "a", "--until-idle") as worker:
        assert worker.wait() == 0, worker.output()
    row.refresh_from_db()
    assert str(row.state) != before, worker.output()


def test_queue_that_is_not_there_is_a_warning_and_served_once_it_is(worker_process, tasks):
    with worker_process("tasks.Task", "--queue", "later") as worker:
        wait_until(lambda: "tasks.queue_missing" in worker.output(), message=worker.output)
        task = make_queue("later", actions_elsewhere=False).publish("echo", 1).task
        wait_until(lambda: statuses({"later": task}) == {"later": "completed"}, message=worker.output)
    assert set(statuses(tasks).values()) == {"pending"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["testapp.Line", "--queue", "a"], "which this worker does not serve; add tasks.Task"),
        (["-x", "tasks.Task", "--queue", "a"], "which this worker does not serve; add tasks.Task"),
        (["--queue", ""], "is not a valid queue name; use 1 to 100 characters"),
        (["--queue", "a" * 101], "is not a valid queue name; use 1 to 100 characters"),
        (["--queue", "a/b"], "is not a valid queue name; use 1 to 100 characters other than /"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments, told):
    with pytest.raises(CommandError, match=told) as caught:
        call_command("runstator", *arguments)
    assert caught.value.returncode == 2
    assert "\n" not in str(caught.value)
