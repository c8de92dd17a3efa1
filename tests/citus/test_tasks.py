"""Spread queues over the nodes of Citus: what holds for a spread queue over partitions holds there."""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, pairwise
from random import Random
from threading import Event
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.state import ProjectState

from stator.migration_operations import Distribute
from stator.runner import StatorRunner
from stator.testing import drain
from tasks.backend.framework import task_finished
from tasks.models import Run, Task
from tests.citus.conftest import NAME, create_database, drop_databases
from tests.citus.test_node_away import START, STOP
from tests.processes import WorkerProcess, wait_until
from tests.sizes import size
from tests.stator.making import raw
from tests.tasks.backend.making import Heard, counts, fresh
from tests.tasks.making import make_queue
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


class Bot(WorkerProcess):
    """A program that claims by name."""

    def __init__(self, queue: str, name: str) -> None:
        super().__init__(TEST_DATABASE_DEFAULT=NAME)
        self.command = [sys.executable, "-m", "tests.tasks.bot", "run", queue, name, "2"]


class Process(WorkerProcess):
    """A worker process."""

    def __init__(self) -> None:
        super().__init__("tasks.Task", STATOR_LEASE="5", TEST_DATABASE_DEFAULT=NAME)


@pytest.mark.skipif(not (STOP and START), reason="CITUS_NODE_STOP or CITUS_NODE_START is not set")
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
