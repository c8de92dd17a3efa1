"""The table of statuses: what may become of a task in each, and finding tasks by theirs."""

import pytest
from asgiref.sync import async_to_sync
from django.db.models import QuerySet

from stator.exceptions import LeaseLost, ProtectedState
from stator.models import History
from tasks.exceptions import MoveRefused, TaskError
from tasks.models import Run, Task
from tests.stator.making import change, expire, row
from tests.tasks.making import STATUSES, claim_one, fresh, make_task, pass_time

pytestmark = pytest.mark.django_db(transaction=True)


# The table of statuses


ACTS = {
    "invisible": {"cancel": "canceled", "time": "pending"},
    "pending": {"claim": "running", "cancel": "canceled"},
    "running": {
        "resolve": "completed", "release": "pending", "fail": "pending", "holder cancels": "canceled",
        "lease runs out": "pending", "last release": "errored", "last fail": "errored",
        "last lease runs out": "errored",
    },
    "completed": {},
    "canceled": {},
    "errored": {"requeue": "pending"},
}  # fmt: skip


def _act(act, queue, task, claim):
    """Try it, by whichever way there is."""
    if act == "cancel":
        task.cancel()
    elif act == "requeue":
        task.requeue()
    elif act == "time":
        pass_time(61)
        queue.claim(worker="nobody", metadata={"none": "such"})
    elif act == "claim":
        queue.claim(worker="bot-2")
    elif act.endswith("lease runs out"):
        if task.state_claim:
            expire(task)
        queue.claim(worker="nobody", metadata={"none": "such"})
    elif claim:
        method = act.rpartition(" ")[2].replace("cancels", "cancel")
        getattr(claim, method)(*(["no"] if method == "fail" else []))
    else:
        # A token that never was, or the one of the claim that ended the task.
        run = Run.objects.first()
        Task.find_claim(task.pk, run.token if run else "00000000-0000-8000-8000-000000000000").resolve()


@pytest.mark.parametrize("act", sorted({act for acts in ACTS.values() for act in acts}))
@pytest.mark.parametrize("status", STATUSES)
def test_table_of_statuses(queue, status, act):
    if status == "running":
        queue.publish("a", lease=3000)
        claim = claim_one(queue)
        task = fresh(claim.task)
        if act.startswith("last "):
            change(task, state_attempts=5)
    else:
        task, claim = make_task(queue, status), None
    wanted = ACTS[status].get(act, status)
    refused = act not in ACTS[status] and act not in ("time", "claim", "lease runs out", "last lease runs out")
    if refused:
        with pytest.raises((MoveRefused, LeaseLost)):
            _act(act, queue, task, claim if act not in ("cancel", "requeue") else None)
    else:
        _act(act, queue, task, claim)
    assert fresh(task).status == wanted


@pytest.mark.parametrize("state", ["completed", "canceled", "errored", "shared"])
@pytest.mark.parametrize("status", STATUSES)
def test_no_move_by_hand_ends_a_task(queue, status, state):
    task = make_task(queue, status)
    before = row(task)
    for move in (
        lambda: task.transition_perform(state, actor="ann"),
        lambda: Task.transition_perform_queryset(queue.tasks.all(), state),
        lambda: Task.stator.filter(pk=task.pk).move(state),
        lambda: queue.tasks.update(state=state),
    ):
        with pytest.raises(ProtectedState, match=rf"^TaskGraph\.{state} can be entered only by the framework"):
            move()
    assert (row(task).state, row(task).state_version) == (before.state, before.state_version)
    assert fresh(task).status == status


def test_dead_letter_is_requeued_with_all_its_attempts_for_all_workers(queue):
    task = make_task(queue, "errored")
    task.requeue("mended", actor="ada")
    assert (task.status, task.attempts, task.rejected_by) == ("pending", 0, ["maker"])
    assert claim_one(queue, "maker").attempt == 1


def test_cancel_names_who_did_it_and_a_canceled_task_is_not_claimed(queue):
    task = make_task(queue)
    task.cancel("by mistake", actor="ada")
    assert queue.claim(worker="bot-1") == []
    with pytest.raises(MoveRefused, match=f"task {task.pk} is canceled; only a task that is invisible or pending"):
        task.cancel()


# What is in a queue


def test_statuses_are_found_and_agree_with_those_of_objects(queue):
    for number, status in enumerate(STATUSES):
        make_task(queue, status, priority=-number)
    queue.publish("shared", worker_count=2)
    queue.publish("later", worker_count=2, invisible_for=60)
    for status in STATUSES:
        found = set(Task.objects.with_status(status))
        assert found == {task for task in Task.objects.all() if task.status == status}
        assert found
    assert Task.objects.with_status("running", "errored").count() == 2
    with pytest.raises(TaskError, match="'done' is not a status"):
        Task.objects.with_status("done")


def test_tasks_are_found_by_age_and_worker(queue):
    queue.publish("a")
    claim = claim_one(queue)
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-1")) == [claim.task]
    claim.release()
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-2")) == []
    assert list(Task.objects.had_by("bot-1")) == [claim.task]
    assert not Task.objects.older_than(60)
    QuerySet(Task).update(created="2020-01-01T00:00:00Z")
    assert Task.objects.older_than(60).get() == claim.task


def test_many_are_canceled_and_requeued_by_async_code(queue):
    task = queue.publish("a").task
    assert async_to_sync(Task.objects.filter(pk=task.pk).acancel)("by mistake", actor="ada") == 1
    assert fresh(task).status == "canceled"
    dead = make_task(queue, "errored")
    assert async_to_sync(queue.tasks.filter(pk=dead.pk).arequeue)("mended", actor="ada", per_minute=60).count == 1
    assert fresh(dead).status in ("pending", "invisible")
    assert [act.reason for act in History.objects.filter(actor="ada").order_by("pk")] == ["by mistake", "mended"]
