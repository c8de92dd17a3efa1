"""How many statements one operation of a queue takes, BEGIN and COMMIT included."""

from datetime import datetime

import pytest
from django.db import connection, transaction
from django.db.models import Sum

from stator import claims as of_programs
from stator.models import History, Report, Stats, history_of
from stator.rows import wakeup
from tasks.exceptions import QueuePaused
from tasks.models import Queue, Run, Task
from tests.tasks.making import claim_one, claimed, fresh, make_queue

pytestmark = pytest.mark.django_db(transaction=True)

# For each operation: on PostgreSQL, on SQLite, and on MariaDB, where a claim finds rows before it locks them.
MAX_LOOKUPS = {
    "publish": (1, 5, 5), "claim": (1, 9, 10), "heartbeat": (1, 5, 5), "resolve": (1, 11, 11),
    "hand_back": (1, 9, 9), "release": (1, 12, 12), "fail": (1, 12, 12), "claim after them": (1, 14, 15),
    "claim by metadata": (1, 9, 9),
}  # fmt: skip

GIVING_UP = {
    "fail": lambda claim: claim.fail(ValueError("no such image")),
    "fail with a text": lambda claim: claim.fail("no such image"),
    "release": lambda claim: claim.release(),
    "release for a reason": lambda claim: claim.release("no disk"),
    "hand back": lambda claim: claim.hand_back(),
}


@pytest.fixture
def warm_queue():
    """A queue with which this process has done everything before."""
    queue = make_queue(same_worker_again=True)
    for _ in range(2):
        queue.publish("resize", {"image": 7})
        for end in GIVING_UP.values():
            end(claim_one(queue))
        claim = claim_one(queue)
        claim.heartbeat()
        claim.resolve({"ok": True})
        queue.publish("resize", metadata={"size": 1})
        claim_one(queue, metadata={"size": 1}).resolve()
    return queue


@pytest.mark.needs("stats")
@pytest.mark.citus_lacks("INSERT in WITH")
def test_statements_of_a_cycle_are_few(count, warm_queue: Queue):
    found = {}
    found["publish"], _ = count(lambda: warm_queue.publish("resize", {"image": 7}))
    found["claim"], (claim,) = count(lambda: warm_queue.claim(worker="bot-1"))
    found["heartbeat"], _ = count(claim.heartbeat)
    found["hand_back"], _ = count(claim.hand_back)
    claim = claim_one(warm_queue)
    found["release"], _ = count(lambda: claim.release("no disk"))
    claim = claim_one(warm_queue)
    found["fail"], _ = count(lambda: claim.fail("no such image"))
    found["claim after them"], (claim,) = count(lambda: warm_queue.claim(worker="bot-1"))
    found["resolve"], _ = count(lambda: claim.resolve({"ok": True}))
    warm_queue.publish("resize", metadata={"size": 7})
    found["claim by metadata"], _ = count(lambda: claim_one(warm_queue, metadata={"size": 7}))
    column = ["postgresql", "sqlite", "mysql"].index(connection.vendor)
    assert found.keys() == MAX_LOOKUPS.keys()
    above = {name: sent for name, sent in found.items() if len(sent) > MAX_LOOKUPS[name][column]}
    assert not above


@pytest.mark.postgresql
def test_workers_are_woken_for_actions_that_they_may_have(warm_queue: Queue):
    notified = []

    def note(execute, sql, params, many, context):
        if "pg_notify" in sql:
            notified.append(params)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        for action, times in (("elsewhere", 0), ("resize", 1)):
            wakeup._sent.clear()
            warm_queue.publish(action, {"image": 7})
            assert len(notified) == times


@pytest.mark.parametrize("end", GIVING_UP.values(), ids=GIVING_UP)
def test_attempt_that_ends_in_one_statement_leaves_what_several_leave(monkeypatch, warm_queue, end):
    left = []
    for _ in range(2):
        Stats.objects.all().delete()
        task = warm_queue.publish("a").task
        for _ in range(2):
            end(claim_one(warm_queue))
        left.append(left_by(task))
        Task.objects.filter(pk=task.pk).delete()
        monkeypatch.setattr(of_programs, "_end_at_once", lambda *arguments: None)
    assert left[0] == left[1]
    assert left[0]["task"]["state_claim"] is None


def left_by(task):
    """What attempts leave of a task, without keys, tokens and times."""
    label = {"model_label": Task._meta.label_lower, "object_pk": str(task.pk)}
    found = {
        "task": Task.objects.filter(pk=task.pk),
        "runs": Run.objects.filter(task=task).order_by("pk"),
        "history": History.objects.filter(**label).order_by("pk"),
        "report": Report.objects.filter(**label),
    }
    found = {name: [without_times(row) for row in rows.values()] for name, rows in found.items()}
    counts = Stats.objects.filter(model_label=label["model_label"]).aggregate(Sum("handled"), Sum("failed"))
    return {**found, "task": found["task"][0], "is_pending": fresh(task).status, "counts": counts}


def without_times(row):
    # A task that waits again is ready, or is marked ready by the next claim.
    left_out = {"id", "pk", "object_pk", "task_id", "token", "state_ready", "priority", "duration"}
    return {
        name: bool(value) if isinstance(value, datetime) else value
        for name, value in row.items() if name not in left_out
    }  # fmt: skip


def test_claim_by_metadata_in_one_statement_is_of_the_first_that_have_it(monkeypatch, warm_queue):
    monkeypatch.setattr("stator.db.sql.FIRST_ROWS", 4)
    for number in range(8):
        warm_queue.publish(str(number), metadata={"even": number % 2 == 0})
    even = [each.task.action for each in warm_queue.claim(worker="bot-1", limit=2, metadata={"even": True})]
    assert even == ["0", "2"]
    # The first four have three odd ones, so all are searched.
    odd = [each.task.action for each in warm_queue.claim(worker="bot-1", limit=4, metadata={"even": False})]
    assert odd == ["1", "3", "5", "7"]
    assert warm_queue.claim(worker="bot-1", metadata={"even": "no"}) == []


# What one statement may not overlook


def configure(queue, **values):
    """Change a queue as another process does."""
    Queue.objects.filter(pk=queue.pk).update(**values)


def test_pause_counts_at_once_and_ends_at_once(warm_queue):
    warm_queue.publish("a")
    configure(warm_queue, claim_paused=True, publish_paused=True)
    assert claimed(warm_queue) == []
    with pytest.raises(QueuePaused):
        warm_queue.publish("b")
    configure(warm_queue, claim_paused=False, publish_paused=False)
    warm_queue.publish("b")
    assert claimed(warm_queue) == ["a", "b"]


def test_new_rules_of_the_queue_count_at_once(warm_queue):
    for action in "abc":
        warm_queue.publish(action)
    configure(warm_queue, one_per_worker=True, lease=300)
    [claim] = warm_queue.claim(worker="bot-1", limit=100)
    assert claim.lease == 300
    assert claimed(warm_queue) == []
    configure(warm_queue, one_per_worker=False, lease=200)
    claims = warm_queue.claim(worker="bot-1", limit=100)
    assert [(each.task.action, each.lease) for each in claims] == [("b", 200), ("c", 200)]


def test_tasks_with_delays_of_their_own_are_published_together(count, warm_queue):
    given = [{"action": "a", "data": {"n": number}, "invisible_for": 10 * number} for number in range(3)]
    sent, published = count(lambda: warm_queue.publish_many(given))
    assert connection.vendor != "postgresql" or [each.split()[0] for each in sent] == ["INSERT"]
    due = [each.task.state_next_attempt for each in published]
    assert due[0] is None
    assert [(at - published[0].task.created).total_seconds() for at in due[1:]] == pytest.approx([10, 20], abs=4)
    assert [each.task.state_ready for each in published] == [True, False, False]
    assert [each.task.data for each in published] == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize("metadata", [{}, {"size": 1}], ids=["none", "some"])
def test_what_tasks_share_is_that_of_each(warm_queue, metadata):
    first, second = (
        each.task
        for each in warm_queue.publish_many(
            {"action": "a", "data": data, "metadata": metadata, "priority": 5} for data in (1, 1.0)
        )
    )
    assert [repr(task.data) for task in (first, second)] == ["1", "1.0"]
    first.metadata["mine"] = True
    assert (second.metadata, fresh(second).metadata, fresh(first).priority) == (metadata, metadata, 5)


def test_run_has_what_the_claim_has(warm_queue):
    task = warm_queue.publish("a").task
    claim = claim_one(warm_queue, lease=77)
    row, run = fresh(task), Run.objects.get(task=task)
    assert (run.token, run.claimed, run.lease_until, run.version, run.worker, run.lease) == (
        claim.token, row.state_attempted, row.state_locked_until, row.state_version, "bot-1", 77,
    )  # fmt: skip
    claim.heartbeat(99)
    run.refresh_from_db()
    assert (run.lease_until, run.lease) == (fresh(task).state_locked_until, 99)
    claim.resolve({"n": None})
    run.refresh_from_db()
    assert (run.outcome, run.result, run.reason, fresh(task).result) == ("succeeded", {"n": None}, "", {"n": None})
    assert run.ended >= fresh(task).state_changed
    [move] = history_of(Task, task.pk, "default", 9)
    assert (move.source, move.to, move.attempts, move.version) == ("pending", "completed", 1, row.state_version + 1)


def test_published_task_is_as_the_database_has_it(warm_queue):
    options = {"key": "k", "priority": 3, "metadata": {"size": 1}, "lease": 9.5, "worker_ids": ["bot-1"]}
    task = warm_queue.publish("a", {"n": [1]}, **options).task
    fields = [field.attname for field in Task._meta.concrete_fields]
    assert {name: getattr(task, name) for name in fields} == {name: getattr(fresh(task), name) for name in fields}
    assert warm_queue.publish("a", **options).outcome == "matched"
    assert Task.objects.filter(key="k").count() == 1


def test_transaction_of_the_caller_holds_what_one_statement_wrote(warm_queue):
    class Undo(Exception):
        pass

    with pytest.raises(Undo), transaction.atomic():
        warm_queue.publish("a")
        claim_one(warm_queue).resolve()
        raise Undo
    assert not Task.objects.filter(action="a").exists()
    assert not Run.objects.filter(task__action="a").exists()
