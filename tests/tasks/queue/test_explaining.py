"""Why a task is not moving: what lies with its queue comes first, then what the framework says of every object."""

import pytest

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


def test_claim_paused_queue_says_by_whom_and_why(queue):
    task = make_task(queue)
    queue.pause(claim=True, author="ada", reason="disk is full")
    assert codes(task)[0] == "claim_paused"
    assert "paused by ada (disk is full)" in said(task, "claim_paused").sentence
    Queue.objects.update(pause_until=ago(1))
    assert "claim_paused" not in codes(task)


def test_exclusive_value_names_the_task_that_has_it_or_comes_first():
    queue = make_queue(exclusive_key="title")
    first, second = (queue.publish("a", metadata={"title": "x"}).task for _ in range(2))
    assert said(second, "exclusive_behind").numbers == {"task": first.pk, "value": "x"}
    claim_one(queue)
    assert f"Task {first.pk} runs" in said(second, "exclusive_held").sentence
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


def test_place_in_line_is_that_in_the_queue_of_the_task(queue):
    live_process("w1")
    other = make_queue("other")
    other.publish_many({"action": "echo", "priority": 0} for _ in range(3))
    task = queue.publish("echo", priority=1).task
    assert said(task, "in_line").numbers == {"ahead": 0, "others": 3}
    other.tasks.all().cancel()
    behind = queue.publish("echo", priority=2).task
    queue.publish("echo", priority=2, worker_ids=["w1"])
    assert "with 2 tasks of queue encode before it" in said(behind, "in_line").sentence
