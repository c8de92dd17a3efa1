"""Acts on tasks in the admin: canceling, requeueing, and when each is offered."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext

from stator.models import History, move_rows
from stator.testing import steps
from tasks.messages import CHANGEABLE
from tasks.models import Task
from tests.tasks.admin.pages import CONFIRMED, act, make_all, make_dead, page, seen_in, text_of
from tests.tasks.making import STATUSES, died_after_a_step, fresh, make_queue, make_task

pytestmark = pytest.mark.django_db


def test_cancel_leaves_alone_what_runs_unless_that_is_said(admin_client):
    tasks = make_all(make_queue())
    asked = act(admin_client, "task_cancel", *tasks.values(), confirmed=False)
    assert "2 tasks are waiting and will be canceled." in text_of(asked)
    assert "1 task is held by workers and will not be canceled, unless you choose so below." in text_of(asked)
    # One that changed since it was shown is left alone and named.
    move_rows(Task.objects.filter(pk=tasks["invisible"].pk), "errored", reason="for a test")
    seen = seen_in(asked) | CONFIRMED
    text = text_of(act(admin_client, "task_cancel", *tasks.values(), confirmed=False, reason="by mistake", **seen))
    assert "1 task canceled. Running tasks were not canceled." in text
    assert f"Not changed, since you were asked: {tasks['invisible'].pk} is in errored now." in text
    expected = dict(zip(STATUSES, STATUSES, strict=True)) | {"pending": "canceled", "invisible": "errored"}
    assert {name: fresh(task).status for name, task in tasks.items()} == expected
    moved = History.objects.get(object_pk=str(tasks["pending"].pk), to="canceled")
    assert (moved.actor, moved.reason) == ("admin", "by mistake")
    assert LogEntry.objects.get().object_id == str(tasks["pending"].pk)
    act(admin_client, "task_cancel", tasks["running"], running="on", reason="runs wild")
    run = tasks["running"].runs.get()
    assert (fresh(run.task).status, run.outcome, run.reason) == ("canceled", "canceled", "runs wild")


def test_dead_letter_starts_over_only_if_that_is_ticked(admin_client):
    queue = make_queue()
    for ticked in ({}, {"start_over": "on"}):
        task = died_after_a_step(queue)
        act(admin_client, "task_requeue", task, **ticked)
        assert bool(steps(task)) == (not ticked)


def test_dead_letters_are_requeued_at_a_rate(admin_client):
    queue = make_queue()
    make_dead(queue, 60)
    with CaptureQueriesContext(connection) as queries:
        response = act(
            admin_client, "task_requeue", queue.tasks.first(), select_across="1", per_minute="6", reason="slowly",
            follow=False,
        )  # fmt: skip
    # The question and its answer.
    assert len(queries) < 100
    text = text_of(admin_client.get(response["Location"]))
    assert "60 tasks requeued at 6 per minute. The last is due at " in text
    dues = list(queue.tasks.in_order().values_list("state_next_attempt", flat=True))
    assert {late - early for early, late in zip(dues, dues[1:], strict=False)} == {timedelta(seconds=10)}
    assert not queue.tasks.exclude(state="pending", state_ready=False).exists()
    assert History.objects.filter(actor="admin", reason="slowly", to="pending").count() == 60


def test_actions_are_offered_where_they_do_something(admin_client):
    tasks = make_all(make_queue())
    for status, task in tasks.items():
        offered = set(re.findall(r'name="action" value="(\w+)"', text_of(admin_client.get(page(task)))))
        assert ("task_cancel" in offered) is (status in ("pending", "invisible", "running"))
        assert ("task_requeue" in offered) is (status == "errored")
        assert ("stator_unlock" in offered) is (status == "running")
        assert ("stator_retry" in offered) is (status in ("pending", "invisible"))
        assert ("stator_move" in offered) is (status in ("pending", "invisible", "running"))


def test_running_task_is_changed_and_what_was_left_stays(admin_client):
    task = make_task(make_queue(), "running", timeout=30, priority=5)
    asked = text_of(act(admin_client, "task_change", task, confirmed=False))
    assert "Another holder loses it at the next heartbeat." in asked
    shown = {f"initial-{name}": "" for name in CHANGEABLE} | {"initial-timeout": "30.0", "initial-priority": "5"}
    given = {"timeout": "", "priority": "5", "worker_ids": "bot-1\nbot-2", "heartbeat_interval": "2", "reason": "slow"}
    # Another person's change meanwhile.
    task.change(priority=9)
    assert "1 task changed." in text_of(act(admin_client, "task_change", task, **shown, **given))
    found = fresh(task)
    assert (found.timeout, found.priority, found.worker_ids, found.heartbeat_interval) == (
        None, 9, ["bot-1", "bot-2"], 2,
    )  # fmt: skip
    assert LogEntry.objects.get().get_change_message() == "Changed timeout, heartbeat_interval, worker_ids. slow"
    text = text_of(act(admin_client, "task_change", task, **shown, **given | {"timeout": "-1"}))
    assert "timeout=-1.0 must be a number from 0.05" in text
