"""Spread queues over the nodes of Citus: what holds for a spread queue over partitions holds there."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count, pairwise
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.migrations.state import ProjectState
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.claims import OUTAGES
from stator.migration_operations import Distribute
from stator.models import Depth
from stator.runner import StatorRunner
from stator.testing import advance, drain
from tasks.backend.framework import task_finished
from tasks.extensions.problems.queues import paused
from tasks.extensions.stats.samples import sample
from tasks.models import Batch, Queue, Run, Task
from tasks.rows.queues import label_of
from tests.citus.conftest import NAME, create_database, drop_databases
from tests.citus.test_node_away import START, STOP
from tests.commanding import asked
from tests.processes import WorkerProcess, wait_until
from tests.sizes import size
from tests.stator.making import raw
from tests.tasks.backend.making import Heard, counts, fresh
from tests.tasks.making import STATUSES, make_queue
from tests.tasks.queue.test_spread_queues import TestClaiming as OfClaims
from tests.tasks.queue.test_spread_queues import TestPublishing as OfPublishing
from tests.tasks.queue.test_spread_queues import TestRaces as OfRaces
from tests.tasks.queue.test_spread_queues import queue
from tests.testapp import tasks as examples

__all__ = ["queue"]

pytestmark = [pytest.mark.citus, pytest.mark.django_db(transaction=True)]

TASKS, KILLS = size(1000, 60), size(20, 3)
DIVIDE = Distribute("tasks.Task", by="shard")


def distribute() -> None:
    state = ProjectState.from_apps(apps)
    with connection.schema_editor(atomic=False) as editor:
        DIVIDE.database_forwards("testapp", editor, state, state)


@pytest.fixture(scope="module", autouse=True)
def nodes(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The default database is one of the cluster, with the tables of tasks over its nodes."""
    former = connections.databases["default"]
    with django_db_blocker.unblock():
        connections["default"].close()
        del connections["default"]
        create_database("default", "stator.citus")
        call_command("migrate", verbosity=0, run_syncdb=True)
        distribute()
        yield
        connections["default"].close()
        del connections["default"]
    connections.databases["default"] = former
    drop_databases()


class TestPublishing(OfPublishing):
    """Over nodes."""


class TestClaiming(OfClaims):
    """Over nodes."""


class TestRaces(OfRaces):
    """Over nodes."""

    test_partition_that_somebody_locks_holds_up_claims_until_it_is_free = None


def test_worker_processes_run_tasks_of_every_slice() -> None:
    spread, other = make_queue(spread=True, actions_elsewhere=False), make_queue("other", actions_elsewhere=False)
    spread.publish_many([{"action": "echo", "data": number} for number in range(60)])
    other.publish("echo", 60)
    StatorRunner([Task]).run_single_cycle()
    assert sorted(raw(Task).filter(state="completed").values_list("result", flat=True)) == [[n] for n in range(61)]
    assert Run.objects.count() == 61


def test_results_of_djangos_tasks_tell_their_attempts() -> None:
    failing = [examples.go_wrong.enqueue(str(n)) for n in range(3)]
    added = examples.add.enqueue(4)
    told = []
    with Heard(task_finished) as finished:
        drain(Task)
        told += [(result.id, counts(result)) for _, _, result, _ in finished]
    for result in failing:
        assert counts(fresh(result)) == (1, 1, 1)
    assert counts(fresh(added)) == (1, 1, 0)
    assert sorted(told) == sorted([*((result.id, (1, 1, 1)) for result in failing), (added.id, (1, 1, 0))])


def test_figures_of_queues_are_those_of_all_nodes(client: Client) -> None:
    spread, other = make_queue(spread=True), make_queue("other")
    batch = Batch(key="album")
    spread.publish_many([{"action": "resize", "key": f"{n}"} for n in range(40)], batch=batch)
    other.publish("resize")
    spread.publish("resize", invisible_for=3600)
    for claim in spread.claim(worker="bot", limit=10)[:4]:
        claim.cancel() if claim.task.key == "0" else claim.resolve()
    listed = {each["queue"]: each for each in asked("tasks", "queues")}
    figures = [[listed[name][key] for key in ("waiting", "later", "running", "dead")] for name in ("encode", "other")]
    assert figures == [["30", "1", "6", "0"], ["1", "0", "0", "0"]]
    assert listed["encode"]["oldest"] > 0
    # A bot is live, and has never asked for tasks of the other queue.
    [tasks] = asked("stator", "status", "tasks.Task")["models"]
    unserved = [(each["numbers"]["group"], each["count"]) for each in tasks["unserved"]]
    assert unserved == [("other", 1), ("encode", 30)]
    assert sample("default")
    depths = Depth.objects.filter(queued__gt=0).values_list("model_label", "queued")
    assert dict(depths) == {label_of("encode"): 30, label_of("other"): 1}
    client.force_login(User.objects.create_superuser("root"))
    pages = [
        *(f"tasks/{name}/" for name in ("task", "queue", "batch", "run", "consumer", "schedule")),
        "stator/overview/",
    ]
    pages += [f"tasks/queue/{spread.pk}/change/", f"tasks/batch/{batch.pk}/change/"]
    pages += [f"tasks/task/?status={status}" for status in STATUSES]
    told = {page: client.get(f"/admin/{page}") for page in pages}
    assert {answer.status_code for answer in told.values()} == {200}
    assert "36" in told["tasks/batch/"].text
    assert "30" in told["stator/overview/"].text
    other.pause(claim=True)
    survey: Any = SimpleNamespace(using="default")
    assert [each.count for each in paused(survey)] == [1]


def test_time_moves_forward_for_tasks_on_all_nodes() -> None:
    queue = make_queue(spread=True, actions_elsewhere=False)
    queue.publish_many([{"action": "echo", "data": number, "invisible_for": 3600} for number in range(8)])
    assert drain(Task) == 0
    advance(3600, Task)
    assert drain(Task) == 8


def test_queue_from_which_worker_processes_claim_nothing_is_named() -> None:
    make_queue("old", actions_elsewhere=False)
    make_queue("programs", one_per_worker=True)
    # As if it was made before the tasks were distributed.
    Queue.objects.filter(name="old").update(one_per_worker=True)
    troubles = asked("stator", "status", "tasks.Task")["troubles"]
    found = [each for each in troubles if each["code"] == "queue_unclaimable"]
    assert [(each["numbers"], each["command"]) for each in found] == [
        ({"queue": "old"}, "manage.py tasks queue set old --no-one-per-worker")
    ]


def test_reasons_of_a_task_are_read_on_its_node() -> None:
    queue = make_queue()
    queue.publish_many([{"action": "resize"} for _ in range(3)])
    task = Task.objects.last()
    assert task
    # So a worker is live, and the task is in line.
    queue.claim(worker="bot")
    with CaptureQueriesContext(connection) as sent:
        told = {reason.code: reason.numbers for reason in task.explain()}
    assert told["in_line"] == {"ahead": 1, "others": 0}
    # Its own row by the key alone, and the tasks of all queues.
    asked = [each["sql"] for each in sent if 'FROM "tasks_task"' in each["sql"]]
    assert len([sql for sql in asked if not re.search(r'"shard" = \d', sql)]) == 2


def test_transaction_of_a_program_changes_cancels_and_requeues_tasks_on_all_nodes() -> None:
    queue = make_queue(spread=True)
    # So each statement opens at once all connections that it may have.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL citus.executor_slow_start_interval = 0")
        queue.publish_many([{"action": "resize", "max_attempts": 1} for _ in range(40)])
        claims = queue.claim(worker="bot", limit=20)
        claims[0].task.change(priority=3)
        claims[1].task.cancel(running=True)
        for claim in claims[2:]:
            claim.fail("no such image")
        assert Task.objects.filter(state="errored").requeue().count == 18
        Task.objects.update(max_attempts=2)
        Queue.objects.filter(pk=queue.pk).update(max_attempts=4)
        assert Task.objects.filter(queue__max_attempts=4, state="pending").cancel() == 38
    assert Counter(raw(Task).values_list("state", flat=True)) == {"canceled": 39, "pending": 1}


class Bot(WorkerProcess):
    """A program that claims by name."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(TEST_DATABASE_DEFAULT=NAME)
        self.command = [sys.executable, "-m", "tests.tasks.bot", "run", queue, name, "2"]


class Process(WorkerProcess):
    """A worker process."""

    def __init__(self) -> None:
        super().__init__("tasks.Task", STATOR_LEASE="5", TEST_DATABASE_DEFAULT=NAME)


node_away = pytest.mark.skipif(not (STOP and START), reason="CITUS_NODE_STOP or CITUS_NODE_START is not set")


@node_away
def test_what_fails_while_a_node_is_away_is_done_by_a_repeat() -> None:
    queue = make_queue(spread=True, lease=3000.0)
    queue.publish_many([{"action": "resize"} for _ in range(40)])
    results = dict.fromkeys(queue.claim(worker="bot", limit=40), "done")
    new = [{"action": "resize", "key": f"{number}"} for number in range(40)]
    stored = 0

    def answers() -> bool:
        try:
            return raw(Task).count() > 0
        except OUTAGES:
            return False

    subprocess.run(STOP, check=True)
    try:
        with pytest.raises(OUTAGES):
            queue.publish_many(new)
        with pytest.raises(OUTAGES):
            queue.resolve_many(results)
        for options in new:
            with suppress(*OUTAGES):
                queue.publish(**options)
                stored += 1
    finally:
        subprocess.run(START, check=True)
    wait_until(answers)
    assert 0 < stored < 40
    assert queue.resolve_many(results) == []
    outcomes = Counter(str(each.outcome) for each in queue.publish_many(new))
    assert outcomes == {"matched": stored, "inserted": 40 - stored}
    assert Counter(raw(Task).values_list("state", flat=True)) == {"completed": 40, "pending": 40}


@node_away
def test_one_task_of_a_value_runs_while_consumers_are_killed_and_a_node_is_away() -> None:
    given = {"lease": 3.0, "max_attempts": 1000, "same_worker_again": True, "actions_elsewhere": False}
    queue = make_queue("titles", spread=True, exclusive_key="title", **given)
    choice, names = Random(7), count()

    def add() -> None:
        queue.publish_many({"action": "echo", "data": n, "metadata": {"title": f"{n % 24}"}} for n in range(TASKS))

    def start(kind: type[WorkerProcess]) -> WorkerProcess:
        return stack.enter_context(Process() if kind is Process else Bot("titles", f"bot-{next(names)}"))

    def harm() -> None:
        """Kill consumers, each time another one begins."""
        for _ in range(KILLS):
            Event().wait(choice.uniform(0.5, 2.5))
            place = choice.randrange(len(consumers))
            consumers[place].kill()
            consumers[place] = start(type(consumers[place]))

    add()
    with ExitStack() as stack:
        consumers = [start(kind) for kind in (Bot, Bot, Bot, Process, Process)]
        wait_until(lambda: raw(Task).filter(state="completed").count() > TASKS / 4)
        harm()
        add()
        subprocess.run(STOP, check=True)
        try:
            harm()
            Event().wait(size(40, 0))
        finally:
            subprocess.run(START, check=True)
        harm()
        left = raw(Task).exclude(state="completed")
        said = lambda: "".join(each.output()[-3000:] for each in consumers)  # noqa: E731
        wait_until(lambda: not left.exists(), message=said)
    runs = Run.objects.values_list("task", "task__exclusive_value", "claimed", "ended", "lease_until", "outcome")
    done, of_value = Counter(task for task, *_, outcome in runs if outcome == "succeeded"), defaultdict(list)
    assert len(done) == 2 * TASKS
    assert set(done.values()) == {1}
    for _, value, claimed, ended, lease_until, _ in runs:
        of_value[value].append((claimed, ended or lease_until))
    assert len(of_value) == 24
    for held in of_value.values():
        assert not [(one, two) for one, two in pairwise(sorted(held)) if one[1] > two[0]]
