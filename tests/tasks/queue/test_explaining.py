"""Why a task is not moving: what lies with its queue comes first, then what the framework says of every object."""

import pytest

from stator.models import Worker
from tasks.models import Queue, Task
from tests.stator.making import ago
from tests.tasks.making import claim_one, fresh, make_queue, make_task
from tests.tasks.queue.processes import live_process
from tests.testapp.tasks import add

pytestmark = pytest.mark.django_db(transaction=True)


def codes(task):
    return [reason.code for reason in fresh(task).explain()]


def said(task, code):
    return next(reason for reason in fresh(task).explain() if reason.code == code)


def test_dead_letter_says_what_went_wrong_and_what_to_do(queue):
    task = make_task(queue, "errored")
    reason = said(task, "dead_letter")
    assert reason.sentence == (
        "It ended without success and needs an operator. The last error: tasks.Failed: no such image"
    )
    assert reason.remedy == "Find the cause. After you have fixed it, requeue the task."
    assert codes(task) == ["dead_letter", "terminal"]


def test_running_task_names_its_worker(queue):
    task = make_task(queue, "running")
    assert codes(task) == ["held"]
    assert said(task, "held").sentence == "Worker maker holds it; this is attempt 1."


def test_claim_paused_queue_says_by_whom_and_why(queue):
    task = make_task(queue)
    queue.pause(claim=True, author="ada", reason="disk is full")
    assert codes(task)[0] == "claim_paused"
    assert said(task, "claim_paused").sentence == "Nothing of queue encode is claimed: paused by ada (disk is full)."
    Queue.objects.update(pause_until=ago(1))
    assert "claim_paused" not in codes(task)


def test_exclusive_value_names_the_task_that_has_it_or_comes_first():
    queue = make_queue(exclusive_key="title")
    first, second = (queue.publish("a", metadata={"title": "x"}).task for _ in range(2))
    assert said(second, "exclusive_behind").numbers == {"task": first.pk, "value": "x"}
    claim_one(queue)
    reason = said(second, "exclusive_held")
    assert reason.sentence == f"Task {first.pk} runs, and only one task with title=x runs at a time."
    assert "exclusive_held" not in codes(first)


def test_action_that_no_code_has_is_reported_where_this_code_runs_it(queue):
    task = queue.publish("unheard of").task
    assert "no_handler" not in codes(task)
    Queue.objects.update(actions_elsewhere=False)
    assert said(task, "no_handler").numbers == {"action": "unheard of"}


def test_task_of_djangos_framework_has_its_handler_here_whether_a_worker_runs_or_not(queue):
    task = Task.objects.get(pk=int(add.enqueue(1, 2).id.partition("-")[0]))
    assert "no_handler" not in codes(task)
    Task.objects.filter(pk=task.pk).update(action="django:tests.testapp.tasks.unheard_of")
    assert said(fresh(task), "no_handler").numbers == {"action": "django:tests.testapp.tasks.unheard_of"}


def test_shared_task_tells_of_its_parts(queue):
    task = queue.publish("a", worker_count=3).task
    claim_one(queue).resolve()
    assert said(task, "shared").sentence == "It is for 3 workers: 1 completed, 2 pending."


def test_every_task_has_a_reason(queue):
    Worker.objects.create(id="0" * 12, host="h", pid=1, version="1", models=["tasks.task"], database="default")
    # In this order, for those that run or have run are claimed.
    for status in ("invisible", "running", "completed", "errored", "canceled", "pending"):
        reasons = make_task(queue, status).explain()
        assert reasons
        assert all(reason.sentence for reason in reasons), status


def test_place_in_line_is_that_in_the_queue_of_the_task(queue):
    live_process("w1")
    other = make_queue("other")
    other.publish_many({"action": "echo", "priority": 0} for _ in range(3))
    task = queue.publish("echo", priority=1).task
    [reason] = [reason for reason in task.explain() if reason.code == "in_line"]
    assert reason.sentence == "Ready, next in line of queue encode, but 3 of other queues are more urgent."
    assert reason.numbers == {"ahead": 0, "others": 3}
    other.tasks.all().cancel()
    behind = queue.publish("echo", priority=2).task
    queue.publish("echo", priority=2, worker_ids=["w1"])
    said = {reason.code: reason.sentence for reason in behind.explain()}
    assert said["in_line"] == "Ready, with 2 tasks of queue encode before it."
