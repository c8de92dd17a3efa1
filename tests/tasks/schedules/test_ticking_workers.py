"""Schedules in real workers: no tick twice, and the same again after a kill."""

from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise

import pytest
from django.db.models import QuerySet

from stator.testing import drain
from tasks.extensions.schedules.schedules import look_again
from tasks.models import Queue, Schedule, Task
from tasks.testing import advance
from tests.processes import WorkerProcess, wait_until
from tests.sizes import size
from tests.stator.making import raw, row

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("transactional_db")]

TICKS = size(500, 200)
TICKER = {"DJANGO_SETTINGS_MODULE": "tests.tasks.ticker.settings", "STATOR_POLL_INTERVAL": "0.5"}


def worker(**variables):
    return WorkerProcess("tasks.Schedule", **{**TICKER, **variables})


def make_schedules(count, **options):
    queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
    given = {"queue": queue, "action": "act", "missed": "all", "overlap": "allow", **options}
    return QuerySet(Schedule).bulk_create(Schedule(name="tick", entity=str(n), **given) for n in range(count))


def test_no_tick_fires_twice_with_four_workers():
    make_schedules(50, period=0.5, jitter=0.1)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker()) for _ in range(4)]
        wait_until(lambda: Task.objects.count() > TICKS, message=workers[0].output)
        assert [each.stop() for each in workers] == [0] * 4
    assert not Schedule.objects.filter(state_claim__isnull=False).exists()
    for schedule in Schedule.objects.all():
        # By number, which MariaDB would order as text.
        tasks = sorted(Task.objects.filter(metadata__schedule=schedule.pk), key=lambda task: task.metadata["tick"])
        assert [task.metadata["tick"] for task in tasks] == list(range(schedule.tick_index))
        planned = [datetime.fromisoformat(task.metadata["planned"]) for task in tasks]
        steps = [(later - earlier).total_seconds() for earlier, later in pairwise(planned)]
        assert all(0.39 <= step <= 0.61 for step in steps), "one tick came twice, or one is missing"


def test_worker_killed_between_work_and_write_leaves_the_tick_to_the_next(tmp_path):
    [schedule] = make_schedules(1, period=60.0)
    drain(Schedule)
    advance(61, Schedule)
    gate = tmp_path / "published"
    with worker(TICKER_STOP_AT=str(gate)) as running:
        wait_until(lambda: gate.exists() and gate.read_text(), message=running.output)
        running.kill()
        running.wait()
    assert gate.read_text() == f"{schedule.pk}:0"
    assert (Task.objects.count(), row(schedule).tick_index) == (0, 0)
    # The lease runs out; whoever comes next presents the same index.
    advance(11, Schedule)
    drain(Schedule)
    assert [task.key for task in Task.objects.all()] == [f"{schedule.pk}:0"]
    assert row(schedule).tick_index == 1


def test_functions_are_called_once_for_each_tick(tmp_path):
    log = tmp_path / "calls"
    log.touch()
    with worker(TICKER_LOG=str(log)) as first, worker(TICKER_LOG=str(log)) as second:
        quick = wait_until(lambda: Schedule.objects.filter(name="ticker.quick").first(), message=first.output)
        # Faster than a lease allows.
        raw(Schedule).filter(pk=quick.pk).update(period=0.5)
        look_again("default", [quick.pk])
        wait_until(lambda: len(log.read_text().splitlines()) >= 4, message=first.output)
        assert (first.stop(), second.stop()) == (0, 0)
    quick = Schedule.objects.get(name="ticker.quick")
    calls = log.read_text().splitlines()
    assert calls == [f"{quick.pk}:{index}" for index in range(len(calls))]
    assert quick.tick_index in (len(calls), len(calls) + 1)
