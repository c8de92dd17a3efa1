"""The life of a task: what each action does in each status."""

from itertools import product

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command

from stator.exceptions import LeaseLost, ProtectedState
from tasks.exceptions import MoveRefused
from tasks.models import Run, Task
from tests.stator.making import change, expire, row
from tests.tasks.making import STATUSES, claim_one, found_claim, fresh, make_task, pass_time

pytestmark = pytest.mark.django_db(transaction=True)


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
        found_claim(task.pk, run.token if run else "00000000-0000-8000-8000-000000000000").resolve()


@pytest.mark.parametrize("status", STATUSES)
def test_table_of_statuses(queue, status):
    for act in sorted({act for acts in ACTS.values() for act in acts}):
        Task.objects.all().delete()
        _try(act, queue, status)


def _try(act, queue, status):
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
    assert fresh(task).status == wanted, act


def _save(task, state):
    task.state = state
    task.save()


# All ways in which an object can be moved by hand, but for the admin's.
BY_HAND = {
    "instance": lambda task, state: task.transition_perform(state, actor="ann"),
    "async": lambda task, state: async_to_sync(task.atransition_perform)(state),
    "queryset": lambda task, state: Task.transition_perform_queryset(Task.objects.filter(pk=task.pk), state),
    "async queryset": lambda task, state: async_to_sync(Task.atransition_perform_queryset)(Task.objects.all(), state),
    "operators": lambda task, state: Task.stator.filter(pk=task.pk).move(state),
    "update": lambda task, state: Task.objects.filter(pk=task.pk).update(state=state),
    "save": _save,
    "command": lambda task, state: call_command("stator", "move", "tasks.Task", state, str(task.pk), "--reason", "r"),
    "command for all": lambda task, state: call_command(
        "stator", "move", "tasks.Task", state, "--state", str(task.state), "--reason", "r"
    ),
}


def test_ended_task_is_not_moved_by_hand(queue):
    for status, (name, move) in [
        *product(["completed", "canceled"], [("update", BY_HAND["update"])]), *product(["errored"], BY_HAND.items()),
    ]:  # fmt: skip
        Task.objects.all().delete()
        task = make_task(queue, status)
        before, refused = row(task), f"in TaskGraph.{status}, which only the framework or a m"
        with pytest.raises((ProtectedState, CommandError), match=refused):
            move(fresh(task), "pending")
        assert (row(task).state, row(task).state_version) == (before.state, before.state_version), name


def test_task_that_has_not_ended_can_be_made_to_begin_again(queue):
    for status, name in product(["invisible", "pending", "running"], ["instance", "async queryset", "update"]):
        Task.objects.all().delete()
        task = make_task(queue, status)
        BY_HAND[name](task, "pending")
        assert (fresh(task).status, row(task).state_version) == ("pending", 1), name


NOT_BY_HAND = ["completed", "canceled", "errored"]
NOT_BY_HAND += ["shared"]  # tasks.extensions.shared


@pytest.mark.parametrize("status", ["pending", "running"])
def test_no_move_by_hand_ends_a_task(queue, status):
    task = make_task(queue, status)
    before = row(task)
    for state, move in product(NOT_BY_HAND, BY_HAND.values()):
        with pytest.raises((ProtectedState, CommandError), match=rf"TaskGraph\.{state} can be entered only by the"):
            move(fresh(task), state)
        assert (row(task).state, row(task).state_version) == (before.state, before.state_version)
