"""What a task loses with a claim that ended before its attempt began: nothing, where that is known."""

from typing import Any

import pytest

import tasks
from stator.models import History
from stator.rows.claimable import Crashes
from tasks.actions.registry import RegisteredAction, registry
from tasks.models import Queue, Run, Task
from tasks.queue import begun
from tests.stator.making import change, expire
from tests.tasks.making import claim_one, fresh, make_queue
from tests.tasks.queue.processes import operations_of, process, publish

pytestmark = pytest.mark.django_db(transaction=True)

PENDING = Task.state_graph.states["pending"]


def queue_with(**options: Any) -> Queue:
    return make_queue(actions_elsewhere=False, **options)


def lose(task: Task, *, is_begun: bool = False) -> Task:
    """Let a process claim the task, and die before or after its attempt has begun."""
    operations = operations_of("lost")
    (claim,) = (found for crashes in Crashes for found in operations.claim([PENDING], 1, crashes=crashes))
    if is_begun:
        begun.mark(claim.instance, claim.token)
    expire(task)
    assert [pk for pk, _ in operations.reap(10)] == [task.pk]
    return fresh(task)


def test_last_attempt_that_never_began_does_not_count():
    task = lose(publish("echo", queue_with(max_attempts=1)))
    assert (task.state_attempts, task.state_crashes, task.status) == (0, 0, "pending")
    assert not Run.objects.exists()
    assert not History.objects.filter(kind="error").exists()
    assert Task.objects.end_exhausted() == 0
    assert process() == 1
    assert (fresh(task).status, fresh(task).attempts) == ("completed", 1)


def test_last_attempt_that_began_counts():
    task = lose(publish("echo", queue_with(max_attempts=1)), is_begun=True)
    assert (task.state_attempts, task.rejected_by) == (1, ["lost"])
    assert Task.objects.end_exhausted() == 1
    assert fresh(task).status == "errored"


def test_task_with_two_attempts_outlives_any_number_of_claims_that_never_began():
    """Of the first nobody knows, so it counts; after it each beginning is marked."""
    task = publish("echo", queue_with(max_attempts=2))
    assert [lose(task).state_attempts for _ in range(4)] == [1, 1, 1, 1]
    assert process() == 1
    assert fresh(task).status == "completed"


def test_after_a_lost_lease_only_what_began_counts():
    task = publish("echo", queue_with(max_attempts=9))
    assert [lose(task, is_begun=is_begun).state_attempts for is_begun in (False, False, True, False)] == [1, 1, 2, 2]
    assert fresh(task).state_crashes == 2


def test_whoever_sets_the_number_of_attempts(monkeypatch: pytest.MonkeyPatch, settings: Any):
    for most in ("task", "queue", "action", "setting"):
        settings.STATOR_TASKS = {"MAX_ATTEMPTS": 1} if most == "setting" else {}
        action = RegisteredAction(name="once", function=lambda: None, max_attempts=1 if most == "action" else None)
        queue = make_queue(most, actions_elsewhere=False, max_attempts={"queue": 1, "action": 5}.get(most))
        monkeypatch.setitem(registry, "once", {"": action})
        task = queue.publish("once", **({"max_attempts": 1} if most == "task" else {})).task
        assert lose(task).state_attempts == 0, most
        task.delete()


def test_claim_of_a_named_worker_is_its_beginning():
    task = make_queue(max_attempts=1).publish("resize").task
    claim_one(task.queue)
    expire(task)
    operations_of("w1").reap(10)
    assert fresh(task).state_attempts == 1
    assert Task.objects.end_exhausted() == 1


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_action_finds_its_last_attempt_marked_and_no_other_attempt_costs_a_statement(
    monkeypatch: pytest.MonkeyPatch, kind: str
):
    found: list[bool] = []

    def call(context: tasks.Context) -> None:
        found.append(Task.objects.filter(pk=context.task.pk, begun=context.claim.token).exists())
        raise OSError("busy")

    async def acall(context: tasks.Context) -> None:
        found.append(await Task.objects.filter(pk=context.task.pk, begun=context.claim.token).aexists())
        raise OSError("busy")

    function = call if kind == "thread" else acall
    monkeypatch.setitem(registry, "call", {"": RegisteredAction(name="call", function=function, takes_context=True)})
    task = publish("call", queue_with(max_attempts=2))
    for _ in range(2):
        change(task, state_ready=True, state_next_attempt=None)
        assert process() == 1
    assert found == [False, True]


def test_attempt_whose_claim_has_ended_does_not_begin(monkeypatch: pytest.MonkeyPatch):
    called: list[bool] = []
    monkeypatch.setitem(registry, "call", {"": RegisteredAction(name="call", function=lambda: called.append(True))})
    write = begun.mark

    def late(task: Task, token: Any) -> None:
        change(task, state_claim=None, state_locked_until=None)
        write(task, token)

    monkeypatch.setattr(begun, "mark", late)
    publish("call", queue_with(max_attempts=1))
    assert process() == 1
    assert not called
