"""``runstator --queue``: a worker that claims from the queues that it names, and from no other."""

import pytest
from django.core.management import CommandError, call_command

from tasks.extensions.problems import unserved
from tasks.models import Task
from tasks.queue.serving import processes_in
from tests.processes import wait_until
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tasks(transactional_db):
    """One task in each of three queues."""
    return {name: make_queue(name, actions_elsewhere=False).publish("echo", 1).task for name in ("a", "b", "c")}


def statuses(tasks):
    for task in tasks.values():
        task.refresh_from_db()
    return {name: task.status for name, task in tasks.items()}


@pytest.mark.needs("fleet")
def test_worker_claims_only_from_the_queues_that_it_names(worker_process, tasks):
    """A queue that is not there is a warning, and is served once it is."""
    with worker_process("tasks.Task", "--queue", "a", "--queue", "later") as worker:
        wait_until(lambda: "tasks.queue_missing" in worker.output(), message=worker.output)
        tasks["later"] = make_queue("later", actions_elsewhere=False).publish("echo", 1).task
        done = {"a": "completed", "b": "pending", "c": "pending", "later": "completed"}
        wait_until(lambda: statuses(tasks) == done, message=worker.output)
        (process,) = processes_in("default")
        assert process.queues == {"a", "later"}
        assert "echo" in process.actions[""]


def test_worker_claims_from_every_queue_but_the_excluded_ones(worker_process, tasks):
    with worker_process("tasks.Task", "--exclude-queue", "b") as worker:
        wait_until(
            lambda: statuses(tasks) == {"a": "completed", "b": "pending", "c": "completed"}, message=worker.output
        )
        codes = {reason.code: reason.sentence for reason in tasks["b"].explain()}
        assert "serves only other queues" in codes["queue_unserved"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["testapp.Line", "--queue", "a"], "which this worker does not serve; add tasks.Task"),
        (["--queue", "a", "--exclude-queue", "a"], "--exclude-queue 'a' is a --queue as well"),
        (["--queue", ""], "is not a valid queue name; use 1 to 100 characters"),
        (["testapp.Line", "--metadata", "region=eu"], "'region=eu' needs tasks.Task, which this worker does not serve"),
        (["--metadata", "region"], "--metadata 'region' must be NAME=VALUE"),
        (["--metadata", "region=[1]"], "must be a text, a number, true or false"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments, told):
    with pytest.raises(CommandError, match=told) as caught:
        call_command("runstator", *arguments)
    assert caught.value.returncode == 2
    assert "\n" not in str(caught.value)


def test_worker_claims_only_tasks_with_its_metadata(worker_process):
    queue = make_queue(actions_elsewhere=False)
    values = [{"region": "eu", "gold": True}, {"region": "eu"}, {"region": "us", "gold": True}, {"gold": 1}, {}]
    tasks = {str(number): queue.publish("echo", metadata=values[number]).task for number in range(5)}
    with worker_process("tasks.Task", "--metadata", "region=eu", "--metadata", "gold=true") as worker:
        wait_until(lambda: statuses(tasks)["0"] == "completed", message=worker.output)
        behind = queue.publish("echo", metadata=values[0]).task
        wait_until(lambda: statuses({"": behind})[""] == "completed", message=worker.output)
        said = {reason.code: reason.sentence for reason in tasks["1"].explain()}
        assert "tasks of other actions or other metadata only" in said["action_unserved"]
        found = Task.objects.filter(unserved.reasons("default")["action_unserved"], state="pending")
        assert sorted(found.values_list("pk", flat=True)) == sorted(tasks[number].pk for number in "1234")
    assert [statuses(tasks)[str(number)] for number in range(5)] == ["completed", *["pending"] * 4]
