"""How soon a worker that has nothing to do begins what is committed: by notification, and without any."""

import pytest
from django.db import connection

from tests.sizes import CROWDED
from tests.testapp.faults import Effect, Job

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

# After so long a silence the next look is at least a second away: each look comes after twice the time of the last.
SILENCE, UNTIL_LOOK = 3.3, 0.8
# Before it is believed that nothing wakes it: a busy machine may stop any process for a moment.
TRIES = 6
SLOW = {"STATOR_POLL_INTERVAL": 30, "STATOR_LEASE": 60, "STATOR_SCHEDULE_INTERVAL": 60}


def until_silent(workers):
    """Wait until no worker has sent a statement for some time."""
    workers.until(lambda: silence() > SILENCE)


def silence():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM clock_timestamp() - max(query_start))::float FROM pg_stat_activity"
            " WHERE application_name LIKE 'worker%' AND datname = current_database()"
        )
        return cursor.fetchone()[0] or 0.0


def delay_of(workers, watched, job):
    """Seconds from the commit of a new object to the start of its handler, by the clock of the database."""
    effect = workers.until(lambda: Effect.objects.filter(object_pk=str(job.pk)).first())
    created = next(event for event in watched.history(Job).events if event.pk == str(job.pk))
    return (effect.at - created.at).total_seconds()


def is_woken(workers, watched):
    """Whether a new object is begun sooner than by a look."""
    until_silent(workers)
    delay = delay_of(workers, watched, Job.objects.create())
    print(f"begun after {delay * 1000:.0f} ms")
    return delay < UNTIL_LOOK


def test_commit_wakes_a_worker_that_would_not_look_for_long_also_after_its_listener_was_cut(watch, fleet):
    watched = watch(Job)
    workers = fleet("testapp.Job", **SLOW)
    worker = workers.start()
    Job.objects.create()
    workers.until(lambda: Job.objects.filter(state="done").exists())
    before = workers.until(listeners)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [before[0]])
    workers.until(lambda: listeners() not in ([], before))

    woken = any(is_woken(workers, watched) for _ in range(TRIES))

    workers.finish(Job)
    assert woken, worker.output()
    watched.judge()


def listeners():
    """The connections that listen: they did nothing but that, and call themselves now and then."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')"
        )
        return [pid for (pid,) in cursor.fetchall()]


def test_polling_finds_what_no_notification_tells(watch, fleet):
    """Behind a pooler it is the same: ``test_pooler.py``."""
    watched = watch(Job)
    workers = fleet("testapp.Job", STATOR_POLL_INTERVAL=0.5, STATOR_SCHEDULE_INTERVAL=60, STATOR_NOTIFY="false")
    workers.start()
    Job.objects.create()
    workers.until(lambda: Job.objects.filter(state="done").exists())

    delays = [delay_of(workers, watched, Job.objects.create()) for _ in range(5)]

    workers.finish(Job)
    assert max(delays) < 0.5 * 1.2 + 1 + CROWDED
    watched.judge()
