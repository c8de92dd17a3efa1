"""SQLite has one writer at a time: others have the whole database to themselves (F38), and nobody claims twice."""

import sqlite3
from collections import Counter
from contextlib import closing
from threading import Timer
from time import monotonic

import pytest
from django.db import connection, connections

from tests.faults.events import Kind
from tests.faults.fleet import CROWDED, LEASE, logged
from tests.testapp.faults import Effect, Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]

# Longer than the lease, so that attempts outlive theirs.
LOCKED_FOR = 4.0


def open_to_lock(alias="default"):
    """A connection of its own to the file of a database."""
    path = connections[alias].settings_dict["NAME"]
    return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)


def lock_whole_database(seconds):
    """BEGIN EXCLUSIVE on a connection of its own, ended by a timer."""
    locker = open_to_lock()
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


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_file_that_somebody_has_locked_holds_up_nothing_in_another(watch, fleet, gate):
    """One file is locked for longer than the lease; in the other, handlers run on and keep their leases."""
    watched, elsewhere = watch(Job), ThreadJob.objects.using("other")
    workers = fleet("testapp.Job", "testapp.ThreadJob", DJANGO_SETTINGS_MODULE="tests.routed_settings")
    worker = workers.start()
    elsewhere.bulk_create(ThreadJob(seconds=0.1) for _ in range(60))
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(5))
    workers.until(
        lambda: elsewhere.filter(state="done").exists() and Effect.objects.filter(label="testapp.job").count() == 5
    )
    delays = []
    with closing(open_to_lock("other")) as locker:
        locker.execute("BEGIN EXCLUSIVE")
        end = monotonic() + 2 * LEASE
        while monotonic() < end:
            began = monotonic()
            job = Job.objects.create()
            workers.until(lambda job=job: Job.objects.filter(pk=job.pk, state="done").exists())
            delays.append(monotonic() - began)
        locker.execute("ROLLBACK")
    gate.touch()
    workers.until(lambda: not Job.objects.exclude(state="done").exists())
    workers.until(lambda: not elsewhere.exclude(state="done").exists(), 120)

    print(f"in the file that was not locked objects were done within {max(delays):.2f} s")
    assert max(delays) < 2 + CROWDED
    starts = Counter(Effect.objects.filter(label="testapp.job").values_list("object_pk", "state"))
    assert set(starts.values()) == {1}
    assert len(logged(worker, "stator.lock_timeout")) == 1
    workers.stop()
    watched.judge()


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
