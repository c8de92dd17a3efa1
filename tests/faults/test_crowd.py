"""Very many objects that become ready, or lose their leases, at once (F29); and snapshots that nobody ends (F32)."""

from collections import Counter
from contextlib import closing
from time import monotonic

import psutil
import psycopg
import pytest
from django.db import connection

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_token, new_worker_id
from stator.extensions.problems.commands.doctor import postgresql as doctor
from stator.rows.problem import OK, WARNING
from stator.worker.duties import LIMIT
from tests.faults.checker import ENDS
from tests.faults.events import Kind
from tests.processes import wait_until
from tests.projects import conninfo
from tests.testapp.faults import Job

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

BATCH = 50
MEGABYTE = 1024 * 1024
# SQLite has one writer, and each handler, each claim and each record waits for it.
VERY_MANY = {"postgresql": 100_000, "sqlite": 30_000, "mysql": 30_000}
# For all objects on a machine that has other work.
PATIENCE = 1200


def resident(worker):
    """Megabytes."""
    return psutil.Process(worker.pid).memory_info().rss / MEGABYTE


def done():
    return Job.objects.filter(state="done").count()


def test_very_many_objects_that_become_ready_at_once_are_taken_in_batches(watch, fleet, thorough):
    objects = VERY_MANY[connection.vendor] if thorough else 400
    watched = watch(Job)
    workers = fleet("testapp.Job", STATOR_BATCH_SIZE=BATCH, STATOR_CONCURRENCY=1000, STATOR_LEASE=60)
    worker = workers.start()
    Job.objects.create()
    workers.until(lambda: done() == 1)

    Job.objects.bulk_create((Job() for _ in range(objects)), batch_size=5000)
    workers.until(lambda: done() > objects / 4, PATIENCE)
    early = resident(worker)
    workers.until(lambda: done() == objects + 1, PATIENCE)
    grown = resident(worker) - early
    workers.stop()

    history = watched.history(Job)
    ends = sorted(event.at for event in history.of(Kind.MOVE) if event.new.state == "done")
    halves = [(after - before).total_seconds() for before, after in halved(ends)]
    claimed = Counter(event.new.claim for event in history.of(Kind.CLAIM))
    print(f"{objects} objects in {sum(halves):.1f} s, the first half in {halves[0]:.1f} s; grown by {grown:.1f} MB")
    assert max(claimed.values()) == BATCH
    assert Kind.REAP not in history.kinds()
    # The last is done as quickly as the first, and nothing of those that are done is kept.
    assert not thorough or halves[1] < 3 * halves[0] + 1
    assert grown < 20
    watched.judge()


def halved(moments):
    middle = moments[len(moments) // 2]
    return [(moments[0], middle), (middle, moments[-1])]


def test_very_many_leases_that_end_at_once_are_reaped_in_batches(watch, fleet, thorough):
    """They are leases of a worker that died; afterwards no process has more than a few of its objects at a time."""
    objects = VERY_MANY[connection.vendor] if thorough else LIMIT + 100
    watched = watch(Job)
    Job.objects.bulk_create((Job() for _ in range(objects)), batch_size=5000)
    lost = operations_for(Job, Settings(LEASE=1.0), new_worker_id())
    while lost.claim(list(lost.graph.automatic_states), LIMIT):
        pass
    pks = sorted(Job.stator.leased().values_list("pk", flat=True))
    assert len(pks) == objects
    others = {str(Job.objects.create().pk) for _ in range(50)}
    workers = fleet("testapp.Job", STATOR_LEASE=60)
    for _ in range(2):
        workers.start()

    workers.finish(Job, timeout=PATIENCE)

    history = watched.history(Job)
    reaped = history.of(Kind.REAP)
    assert len(reaped) == len({event.pk for event in reaped}) == objects
    assert max(Counter(event.at for event in reaped).values()) <= LIMIT
    assert not {event.pk for event in reaped} & others
    together = most_at_once(history)
    took = reaped[-1].at - reaped[0].at
    print(
        f"{objects} leases were reaped in {took.total_seconds():.1f} s, then at most {together} of them ran at a time"
    )
    assert together <= 2 * Settings().crashed_at_once
    watched.judge()


def most_at_once(history):
    """The most objects that were run at a time after they had lost a lease."""
    reaped, held, most = set(), set(), 0
    for event, kind in zip(history.events, history.kinds(), strict=True):
        if kind is Kind.REAP:
            reaped.add(event.pk)
        elif kind is Kind.CLAIM and event.pk in reaped:
            held.add(event.pk)
        elif kind in ENDS:
            # In its next state it is as good as any other.
            held.discard(event.pk)
            reaped.discard(event.pk)
        most = max(most, len(held))
    return most


@pytest.mark.postgresql
def test_snapshot_that_nobody_ends_is_reported_and_does_not_stop_claims(fleet, monkeypatch, thorough):
    churned = 10_000 if thorough else 400
    monkeypatch.setattr(doctor, "LONG_TRANSACTION", 1.0)
    monkeypatch.setattr(doctor, "OLD_SNAPSHOT", 20)
    monkeypatch.setattr(doctor, "DEAD_ROWS", churned)
    workers = fleet("testapp.Job")
    before = claim_time()
    with closing(psycopg.connect(**conninfo(connection.settings_dict))) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM testapp_job")
        pid = reader.info.backend_pid
        workers.start()
        Job.objects.bulk_create(Job() for _ in range(churned))
        workers.until(lambda: done() == churned, 300)
        workers.stop()
        wait_until(lambda: levels() == {"transactions": WARNING, "snapshots": WARNING, "dead rows": WARNING})
        held = claim_time()
        (found,) = [found for found in findings() if found.code == "transactions"]
        assert found.sentence.startswith(f"session {pid} of ")
        assert doctor.oldest_transaction("default") > 1

    wait_until(is_cleaned_away, message=lambda: str(findings()))
    assert not any(f"session {pid} " in found.sentence for found in findings())

    print(f"a claim took {1000 * before:.1f} ms, and {1000 * held:.1f} ms among dead rows")
    assert not thorough or held < 10 * max(before, 0.005)


def is_cleaned_away():
    """Again until it is so: the server itself looks at tables now and then, and keeps a snapshot for so long."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM testapp_job")
    return levels()["dead rows"] == OK


def findings():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
    looks = (doctor.long_transactions, doctor.oldest_snapshot, doctor.dead_rows)
    return [found for look in looks for found in look("default", [Job])]


def levels():
    return {found.code: found.level for found in findings()}


def claim_time():
    """Seconds that a claim of 20 objects takes, of 30 claims the slowest but the two that were disturbed most."""
    Job.objects.bulk_create(Job() for _ in range(20))
    operations = operations_for(Job, Settings(), new_worker_id())
    states, times = list(operations.graph.automatic_states), []
    for _ in range(30):
        token, started = new_token(operations.worker_id), monotonic()
        assert len(operations.claim(states, 20, token=token)) == 20
        times.append(monotonic() - started)
        operations.release_token(token)
    Job.objects.all().delete()
    return sorted(times)[-3]
