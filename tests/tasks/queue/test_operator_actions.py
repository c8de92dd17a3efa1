"""The table of statuses: what may become of a task in each, and finding tasks by theirs."""

import pytest
from django.core.management import call_command

from stator.models import Action
from stator.testing import drain, steps
from stator.undo import undo
from tasks.models import Batch, Task
from tasks.queue import operator_actions
from tests.stator.making import change
from tests.tasks.making import claim_one, claimed, died_after_a_step, fresh, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def test_dead_letter_is_requeued_with_all_its_attempts_for_all_workers(queue):
    task = make_task(queue, "errored")
    task.requeue("mended", actor="ada")
    assert (task.status, task.attempts, task.rejected_by) == ("pending", 0, ["maker"])
    assert claim_one(queue, "maker").attempt == 1


def test_many_are_requeued_in_batches(queue, monkeypatch):
    monkeypatch.setattr(operator_actions, "BATCH", 3)
    tasks = [make_task(queue, "errored") for _ in range(4)]
    assert Task.objects.requeue("mended").count == 4
    assert [fresh(task).status for task in tasks] == ["pending"] * 4


REQUEUED = {
    "one": lambda task, **over: task.requeue("mended", **over),
    "of a batch": lambda task, **over: task.batch.requeue("mended", **over),
    "by a command": lambda task, start_over=False: call_command(
        "tasks", "requeue", str(task.pk), *["--start-over"] * start_over
    ),
}


@pytest.mark.parametrize("requeue", REQUEUED.values(), ids=REQUEUED)
def test_requeued_task_keeps_its_steps_unless_it_is_to_start_over(queue, requeue):
    task = died_after_a_step(queue, batch=Batch(queue=queue) if requeue is REQUEUED["of a batch"] else None)
    requeue(task)
    assert steps(task) == {"charge": "receipt 1"}
    claim = claim_one(queue)
    assert claim.step("charge", lambda: pytest.fail("it is recorded")) == "receipt 1"
    claim.fail("no paper")
    requeue(fresh(task), start_over=True)
    claim = claim_one(queue)
    assert claim.step("charge", lambda: "receipt 2") == "receipt 2"
    # So does one that is published again.
    claim.fail("no paper")
    queue.publish("resize", key="once", clear_failed=True)
    assert not steps(task)


def test_part_of_a_shared_task_keeps_its_steps(queue):
    task = died_after_a_step(queue, worker_count=2).whole
    claim_one(queue, "bot-2").resolve()
    fresh(task).requeue("mended")
    assert claim_one(queue).step("charge", lambda: pytest.fail("it is recorded")) == "receipt 1"


def undone():
    """Undo the latest action, all of whose tasks are as it has left them."""
    done = undo(Action.objects.latest("pk").pk, "default", actor="eve", reason="by mistake")
    assert done.left == {}
    return done.count


def test_canceled_tasks_come_back_when_the_cancel_is_undone(queue):
    for status in ("running", "invisible", "pending"):
        task = make_task(queue, status)
        due = task.state_next_attempt
        assert Task.objects.filter(pk=task.pk).cancel("by mistake", actor="ada", running=True) == 1
        assert undone() == 1
        task = fresh(task)
        # The program that had it may still run it, until its lease would have ended.
        assert task.status == ("invisible" if status == "running" else status)
        assert status != "invisible" or task.state_next_attempt == due
    assert claim_one(queue).attempt == 1
    # A shared task with its parts.
    task = make_task(queue, worker_count=2)
    assert Task.objects.filter(pk=task.pk).cancel(actor="ada") == 1
    assert undone() == 3
    assert fresh(task).status == "pending"
    assert len(claimed(queue, "bot-1")) == len(claimed(queue, "bot-2")) == 1


def left_alone():
    done = undo(Action.objects.filter(kind="cancel").latest("pk").pk, "default", actor="eve", reason="by mistake")
    assert done.count == 0
    return done.left


@pytest.mark.parametrize("end", ["done", "canceled"])
def test_canceled_task_does_not_come_back_into_a_batch_that_has_ended(queue, end):
    batch = Batch(on_done="report")
    first, second = queue.publish_many([{"action": "resize"}, {"action": "resize", "worker_count": 2}], batch=batch)
    if end == "canceled":
        batch.cancel()
    else:
        Task.objects.filter(batch=batch).cancel("by mistake", actor="ada")
        if end == "done":
            drain(Batch)
    parts = Task.objects.filter(whole=second.task).values_list("pk", flat=True)
    why = f"is in batch {batch.pk}, which is {end}"
    assert left_alone() == {str(pk): why for pk in (first.task.pk, second.task.pk, *parts)}
    assert set(Task.objects.exclude(action="report").values_list("state", flat=True)) == {"canceled"}


def test_failed_batch_whose_canceled_task_comes_back_runs_again(queue):
    batch = Batch(on_failed="complain")
    dead, canceled = queue.publish_many([{"action": "resize", "max_attempts": 1}] * 2, batch=batch)
    claim_one(queue).fail("no")
    Task.objects.filter(pk=canceled.task.pk).cancel(actor="ada")
    drain(Batch)
    assert undone() == 1
    batch.refresh_from_db()
    assert (fresh(canceled.task).status, batch.state) == ("pending", "running")


def test_canceled_task_that_has_lost_parts_does_not_come_back(queue):
    task = make_task(queue, worker_count=2)
    Task.objects.filter(pk=task.pk).cancel(actor="ada")
    part, _ = task.parts.order_by("pk")
    Task.objects.filter(pk=part.pk).delete()
    assert set(left_alone().values()) == {"is gone", "has lost parts to its retention"}
    assert set(task.parts.values_list("state", flat=True)) == {"canceled"}


@pytest.mark.needs("notices")
def test_requeued_dead_letters_are_dead_again_without_a_second_notice_unless_a_program_has_had_them(queue):
    task = make_task(queue, "errored")
    change(task, notice_due=None)
    attempts = fresh(task).state_attempts
    assert Task.objects.requeue("mended", actor="ada", per_minute=60).count == 1
    assert undone() == 1
    task = fresh(task)
    assert (task.status, task.state_attempts, task.notice_due) == ("errored", attempts, None)
    assert claimed(queue) == []
    Task.objects.requeue(actor="ada")
    claim_one(queue, "bot-2").release("not now")
    done = undo(Action.objects.latest("pk").pk, "default", actor="eve", reason="by mistake")
    assert (done.count, list(done.left)) == (0, [str(task.pk)])
