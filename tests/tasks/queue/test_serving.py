"""Which actions and queues a worker process publishes that it serves."""

import pytest

from stator.extensions.fleet.presence import published_by
from stator.models import Worker
from tasks.queue.serving import Process, processes_in
from tests.processes import wait_until
from tests.tasks.making import fresh, make_queue
from tests.tasks.queue.crew import reasons

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.needs("fleet")
def test_process_publishes_its_actions_and_its_queues(worker_process, queue):
    other = make_queue("mail")
    with worker_process("tasks.Task", "--queue", "encode") as worker:
        wait_until(lambda: Worker.objects.live().exists(), message=worker.output)
        (process,) = processes_in("default")
        assert process.queues == {"encode"}
        assert "echo" in process.actions[""]
        assert list(reasons(queue.publish("typo").task)) == ["action_unserved"]
        assert list(reasons(other.publish("echo").task)) == ["queue_unserved"]
        task = queue.publish("echo", 1).task
        wait_until(lambda: fresh(task).status == "completed", message=worker.output)


def test_process_with_too_many_actions_may_have_any(queue, monkeypatch):
    monkeypatch.setattr("tasks.queue.serving.MAX_ACTIONS", 1)
    Worker.objects.create(
        id="1" * 12, host="h", pid=1, version="1", models=["tasks.task"], database="default",
        published=published_by(object()),
    )  # fmt: skip
    (process,) = processes_in("default")
    assert (process.actions, process.queues) == (None, None)
    assert list(reasons(queue.publish("typo").task)) == ["in_line"]


@pytest.mark.parametrize("published", [None, [], "x", {"tasks": 3}, {"tasks": {"actions": [], "queues": 7}}])
def test_what_another_release_publishes_counts_as_any(published):
    assert Process.of("1", published) == Process("1", None, None)
