"""Runs are the history of attempts: with acts by hand, and what version 1.1 wrote, they are one list."""

from typing import Any

import pytest
from django.db import connection

from stator.extensions.reports.stays import stays
from stator.models import History, history_of
from stator.testing import drain
from tasks.admin.timeline import timeline
from tasks.backend.history import events_of, read_with_history
from tasks.models import Run, Task
from tasks.queue.operator_actions import clear
from tasks.queue.run_history import in_history as told_by_runs
from tests.stator.making import expire
from tests.tasks.making import claim_one, fresh, make_queue, make_task
from tests.tasks.queue.processes import operations_of, publish

pytestmark = pytest.mark.django_db(transaction=True)


def entries(task: Task, most: int = 50) -> list[History]:
    return history_of(Task, task.pk, "default", most)


def kinds(task: Task) -> list[tuple[str, str, str, int]]:
    return [(entry.kind, entry.source, entry.to, entry.attempts) for entry in entries(task)]


def stored() -> set[str]:
    """The kinds of entries in the table."""
    return set(History.objects.values_list("kind", flat=True))


def ended_by_1_1(task: Task) -> Run:
    """The latest run as version 1.1 leaves it, with the entry that it writes beside it."""
    run = task.runs.latest("pk")
    [entry] = [each for each in entries(task) if each.at == run.ended]
    entry.save(force_insert=True)
    names = ("attempt", "duration", "to", "stay", "error", "fingerprint")
    Run.objects.filter(pk=run.pk).update(**dict.fromkeys(names))
    return run


def test_attempts_and_acts_by_hand_are_one_list_by_time():
    queue = make_queue()
    task = queue.publish("resize", max_attempts=2).task
    claim_one(queue, "bot-0").release("no disk")
    claim_one(queue).fail("no such image")
    task = fresh(task)
    task.requeue("mended", actor="ann")
    claim_one(queue, "bot-2").release("no disk")
    claim_one(queue, "bot-3").resolve({"ok": True})
    assert kinds(task) == [
        ("move", "pending", "completed", 2), ("hand", "errored", "pending", 0), ("move", "pending", "errored", 2),
    ]  # fmt: skip
    assert stored() == {"hand"}
    last, act, first = entries(task)
    assert (act.actor, act.reason, act.worker) == ("ann", "mended", "")
    assert first.error == "tasks.Failed: no such image"
    assert [entry.at for entry in entries(task, 2)] == [last.at, act.at]
    in_history = [
        event.what for event in timeline(fresh(task), []) if event.what in ("succeeded", "failed", "released")
    ]
    assert in_history == ["succeeded", "released", "failed", "released"]


def test_attempts_of_a_process_have_what_the_history_had():
    queue = make_queue(actions_elsewhere=False, worker_retries=9, same_worker_again=True)
    task = publish("break", queue, max_attempts=1)
    done = publish("echo", queue)
    drain(Task)
    [error] = entries(task)
    run = task.runs.get()
    assert (error.kind, error.to, error.attempts, error.version) == ("move", "errored", 1, 1)
    assert error.error.startswith("tests.testapp.actions.Odd: ")
    assert error.fingerprint
    [move] = entries(done)
    assert (move.kind, move.to, move.attempts, move.error) == ("move", "completed", 1, "")
    for entry in (error, move):
        assert entry.duration > 0
        assert entry.stay >= 0
        assert entry.worker == run.token.hex[:12]
    assert not History.objects.exists()
    assert [stay.moves for stay in stays("default", [Task])["tasks.task"]] == [2]


def test_lost_lease_is_an_entry_of_the_run():
    task = publish("echo", make_queue(actions_elsewhere=False))
    operations = operations_of("lost")
    operations.claim([Task.state_graph.states["pending"]], 1)
    expire(task)
    assert [pk for pk, _ in operations.reap(10)] == [task.pk]
    assert kinds(task) == [("error", "pending", "", 1)]
    [entry] = entries(task)
    assert "LeaseLost" in entry.error or "lease" in entry.error
    assert not History.objects.exists()
    assert Run.objects.count() == 1


def test_task_in_flight_over_the_upgrade_has_each_attempt_once():
    queue = make_queue(worker_retries=9)
    task = queue.publish("resize", max_attempts=9).task
    claim_one(queue).fail("of 1.1")
    ended_by_1_1(fresh(task))
    claim_one(queue, "bot-2").fail("of now")
    claim = claim_one(queue, "bot-3")
    claim.resolve()
    assert [(entry.kind, entry.attempts) for entry in entries(task)] == [("move", 3), ("error", 2), ("error", 1)]
    assert [entry.pk is not None for entry in entries(task)] == [False, False, True]
    [row] = read_with_history(Task.objects.filter(pk=task.pk))
    assert [(each.stay, each.number, each.to) for each in events_of(row)] == [
        (0, 1, ""), (0, 2, ""), (0, 3, "completed"),
    ]  # fmt: skip
    assert [each.worker for each in events_of(row)] == [run.token.hex[:12] for run in task.runs.order_by("pk")]


def test_attempts_that_do_not_count_any_more_are_still_told():
    queue = make_queue()
    task = queue.publish("resize", key="k", max_attempts=9).task
    claim_one(queue).fail("no such image")
    assert clear(fresh(task), failed=True, succeeded=False)
    assert fresh(task).attempts == 0
    [entry] = entries(task)
    assert (entry.version, entry.attempts, entry.kind) == (0, 1, "error")


@pytest.mark.postgresql
def test_attempts_of_one_task_among_many_are_found_by_the_index_of_runs() -> None:
    queue = make_queue()
    task = make_task(queue, "completed")
    run = task.runs.get()
    copied: dict[str, Any] = {
        "worker": "bot-1", "token": run.token, "lease_until": run.lease_until, "ended": run.ended, "attempt": 1,
    }  # fmt: skip
    Run.objects.bulk_create(Run(task_id=task.pk + 1 + n, **copied) for n in range(1000))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tasks_run")
    assert "tasks_run_of_worker" in told_by_runs(Run.objects.filter(task=task)).order_by("-at", "-pk")[:50].explain()
    assert "tasks_run_pkey" in Run.objects.order_by("-pk").values("ended")[:50].explain()
