"""Ended tasks are deleted when their retention is over, and nothing else is."""

from functools import partial

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from stator import signals
from stator.extensions.partitions.tables import read
from stator.models import History, Report
from stator.runner import StatorRunner
from tasks.chores import retention
from tasks.chores.retention import prune
from tasks.models import Claimant, Queue, Run, Task
from tasks.rows import idle
from tests.stator.dividing import divided
from tests.stator.making import ago, change
from tests.tasks.making import STATUSES, claim_one, make_queue, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def aged(task, seconds):
    change(task, state_changed=ago(seconds))


def test_only_ended_tasks_are_deleted():
    for status in STATUSES:
        aged(make_task(make_queue(status, retention=100), status), 101)
    assert prune("default") == 3
    assert {task.status for task in Task.objects.all()} == {"invisible", "pending", "running"}


def test_retention_is_the_tasks_else_the_queues_else_the_settings(settings):
    settings.STATOR_TASKS = {"RETENTION": 300}
    for own, queues, kept_for in (
        (200, 100, 200), (None, 100, 100), (None, None, 300), (0, 100, 0),
    ):  # fmt: skip
        task = make_task(make_queue(f"{own} {queues}", retention=queues), "canceled", retention=own)
        if kept_for:
            aged(task, kept_for - 5)
            assert prune("default") == 0
        aged(task, kept_for + 5)
        assert prune("default") == 1


def test_failed_tasks_are_kept_as_long_as_the_queue_or_the_setting_says(settings):
    for setting, queues, kept_for in ((200, None, 200), (None, 50, 50)):
        settings.STATOR_TASKS = {"RETENTION": 300, "FAILED_RETENTION": setting}
        queue = make_queue(f"{setting} {queues}", retention=100, failed_retention=queues)
        failed, completed, canceled = (make_task(queue, status) for status in ("errored", "completed", "canceled"))
        for task in (failed, completed, canceled):
            aged(task, kept_for - 5)
        prune("default")
        ended = {task.pk for task in queue.tasks.all()}
        assert failed.pk in ended
        assert {completed.pk, canceled.pk} & ended == ({completed.pk, canceled.pk} if kept_for < 105 else set())
        aged(failed, kept_for + 5)
        prune("default")
        assert not queue.tasks.filter(pk=failed.pk).exists()
        queue.tasks.all().delete()


def test_records_of_a_task_are_deleted_with_it():
    queue = make_queue(retention=0)
    queue.publish("other")
    task = make_task(queue, "errored", priority=-1)
    task.requeue()
    claim_one(queue, "maker-2").cancel()
    aged(task, 5)
    assert (History.objects.exists(), Report.objects.exists(), Run.objects.exists()) == (True, True, True)
    signals.on_schedule.send(StatorRunner([Task]))
    assert [task.action for task in Task.objects.all()] == ["other"]
    assert (History.objects.exists(), Report.objects.exists(), Run.objects.exists()) == (False, False, False)


def test_shared_task_is_deleted_with_its_parts_and_no_part_before():
    queue = make_queue(retention=10)
    whole = queue.publish("a", worker_count=2).task
    claim = claim_one(queue, "bot-1")
    claim.resolve()
    aged(claim.task, 60)
    assert prune("default") == 0
    claim_one(queue, "bot-2").resolve()
    aged(whole, 60)
    assert prune("default") == 1
    assert not Task.objects.exists()


def test_many_are_deleted_in_batches(monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 3)
    queue = make_queue(retention=10)
    queue.publish_many({"action": "a"} for _ in range(10))
    QuerySet(Task).update(state="completed", state_ready=False, state_changed=ago(60))
    assert prune("default") == 10
    assert not Task.objects.exists()


def test_no_transaction_deletes_more_rows_than_a_batch_of_tasks_and_one_of_parts(monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 10)
    queue = make_queue(retention=10)
    queue.publish("a", worker_count=100)
    QuerySet(Task).update(state="errored", state_ready=False, state_changed=ago(60))
    every, at_once = QuerySet(Task), []
    delete = retention._delete

    def counted(*args):
        before = every.count()
        done = delete(*args)
        at_once.append(before - every.count())
        return done

    monkeypatch.setattr(retention, "_delete", counted)
    assert prune("default") == 1
    assert sum(at_once) == 101
    assert max(at_once) <= 11


def test_retention_that_was_written_unchecked_keeps_no_other_queue_from_being_pruned():
    forever, queue = make_queue("forever"), make_queue(retention=100)
    kept = [make_task(forever, "canceled"), make_task(queue, "canceled")]
    QuerySet(Queue).filter(pk=forever.pk).update(retention=1e12)
    change(kept[1], retention=1e12)
    for task in (*kept, make_task(queue, "canceled")):
        aged(task, 1000)
    assert prune("default") == 1
    assert set(Task.objects.all()) == set(kept)


def test_workers_that_have_not_asked_for_long_are_forgotten_in_batches(monkeypatch):
    monkeypatch.setattr(idle, "AT_ONCE", 2)
    monkeypatch.setattr(retention, "BATCHES", 1)
    queue = make_queue()
    for number in range(4):
        queue.note_worker(f"bot-{number}")
    Claimant.objects.exclude(worker="bot-3").update(seen=ago(86401))
    prune("default")
    assert Claimant.objects.count() == 2
    prune("default")
    assert [claimant.worker for claimant in Claimant.objects.all()] == ["bot-3"]


@pytest.mark.postgresql
def test_runs_in_partitions_stay_until_all_tasks_of_their_partition_are_deleted():
    with divided("tasks.Run", "month"), divided("stator.History", "month"):
        queue = make_queue(retention=100)
        old, kept = make_task(queue, "completed"), make_task(queue, "completed", retention=1000)
        [part] = [each for each in read(Run, "default").partitions if each.upper and not each.lower]
        over = partial(retention._is_of_no_task, "default", part)
        aged(old, 200)
        aged(kept, 200)
        with CaptureQueriesContext(connection) as asked:
            assert prune("default") == 1
        deleted = {each["sql"].split('"')[1] for each in asked if each["sql"].startswith("DELETE")}
        assert not deleted & {"tasks_run", "stator_history"}
        assert set(Run.objects.values_list("task", flat=True)) == {old.pk, kept.pk}
        assert not over()
        aged(kept, 2000)
        assert prune("default") == 1
        assert over()


@pytest.mark.postgresql
def test_a_task_that_is_deleted_leaves_its_runs_in_partitions_until_the_table_is_ordinary_again():
    with divided("tasks.Run", "month"):
        gone, left = make_task(make_queue(), "completed"), make_task(make_queue("b"), "completed")
        gone.delete()
        assert Run.objects.count() == 2
    assert Run.objects.get().task == left
    left.delete()
    assert not Run.objects.exists()
