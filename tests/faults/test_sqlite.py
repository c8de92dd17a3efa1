"""SQLite has one writer at a time: others have the whole database to themselves (F38), and nobody claims twice."""

import sqlite3
from collections import Counter
from contextlib import closing
from threading import Timer

import pytest
from django.db import connection

from tests.faults.events import Kind
from tests.faults.fleet import logged
from tests.testapp.faults import Effect, Job

pytestmark = [pytest.mark.fault, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]

# Longer than the lease, so that attempts outlive theirs.
LOCKED_FOR = 4.0


def lock_whole_database(seconds):
    """BEGIN EXCLUSIVE on a connection of its own, ended by a timer."""
    path = connection.settings_dict["NAME"]
    locker = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    locker.execute("BEGIN EXCLUSIVE")
    release = Timer(seconds, locker.execute, ["ROLLBACK"])
    release.start()
    release.join()
    locker.close()


def test_work_goes_on_after_somebody_has_locked_the_whole_database(watch, fleet):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.2) for _ in range(300))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=5)
    started = [workers.start() for _ in range(2)]
    for _ in range(2):
        before = Effect.objects.count()
        workers.until(lambda before=before: Effect.objects.count() > before + 10)
        lock_whole_database(LOCKED_FOR)

    workers.until(lambda: not Job.objects.exclude(state="done").exists(), 120)
    workers.stop()

    assert all(not logged(worker, "stator.frozen") for worker in started)
    watched.judge(max_crashes=1000)


def test_four_processes_never_claim_a_row_twice(watch, fleet, thorough):
    objects = 5000 if thorough else 1000
    watched = watch(Job)
    Job.objects.bulk_create(Job() for _ in range(objects))
    # A lease that no attempt outlives, however slow the machine: whatever is claimed twice is a fault.
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=25, STATOR_LEASE=60)
    started = [workers.start("--until-idle") for _ in range(4)]

    assert [worker.wait(300) for worker in started] == [0] * 4

    kinds = Counter(watched.history(Job).kinds())
    assert kinds[Kind.CLAIM] - kinds[Kind.RELEASE] == kinds[Kind.MOVE] == 2 * objects
    assert kinds[Kind.REAP] == 0
    assert all(workers.starts(worker).exists() for worker in started)
    with closing(connection.cursor()) as cursor:
        assert cursor.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    watched.judge()
