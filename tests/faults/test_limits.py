"""Limits of a state, kept and reached again however workers die; and of connections (F36), never hoarded."""

from datetime import timedelta

import pytest
from django.db import connection

from tests.faults.checker import ENDS
from tests.faults.events import Kind
from tests.faults.fleet import LEASE, RECOVERY, logged
from tests.faults.servers import SESSIONS_OF_MYSQL, allow, cut_connections, execute, now, role_with_connections, url_for
from tests.testapp.basic import Step
from tests.testapp.faults import Effect, Job, ThreadJob
from tests.testapp.harmed import Limited

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

MAX_RUNNING = 3
# Objects that were lost with two workers in a row are run in a process of their own, which has to start first.
SLACK = 1.0


def running(but=()):
    """How many handlers are at work, those of some actors left out."""
    claims = Limited.objects.filter(state_claim__isnull=False).values_list("state_claim", flat=True)
    return Effect.objects.filter(claim__in=list(claims)).exclude(actor__in=but).count()


def numbers_at_once(history):
    """``(moment, held)`` after each event: how many claims each actor holds, in database time."""
    held = {}
    for event, kind in sorted(zip(history.events, history.kinds(), strict=True), key=turn):
        if kind is Kind.CLAIM:
            held[event.pk] = event.actor
        elif kind in ENDS:
            held.pop(event.pk, None)
        yield event.at, dict(held)


def turn(found):
    """In the order of time; of one moment, the ends first."""
    event, kind = found
    return event.at, kind is Kind.CLAIM


@pytest.mark.mariadb
def test_limit_holds_and_is_reached_again_when_workers_are_killed(watch, fleet, thorough):
    kills = 40 if thorough else 1
    watched = watch(Limited)
    Limited.objects.bulk_create(Limited(seconds=0.4) for _ in range(300 * kills))
    workers = fleet("testapp.Limited", STATOR_MAX_CRASHES=1000)
    for _ in range(4):
        workers.start()
    killed = {}

    for _ in range(kills):
        workers.until(lambda: running(but=killed) == MAX_RUNNING)
        victim = busiest(workers)
        workers.kill(victim.name)
        killed[f"{victim.name}:{victim.pid}"] = now()
        workers.start()
    workers.until(lambda: running(but=killed) == MAX_RUNNING)
    Limited.objects.filter(state_claim=None).exclude(state="done").delete()
    workers.finish(Limited)

    numbers = list(numbers_at_once(watched.history(Limited)))
    assert max(len(held) for _, held in numbers) == MAX_RUNNING
    waits = [recovered(numbers, killed, moment) for moment in killed.values()]
    print(f"{kills} kills; {MAX_RUNNING} at a time again after {', '.join(f'{wait:.1f}' for wait in waits)} s")
    assert max(waits) <= LEASE + RECOVERY + SLACK
    watched.judge(max_crashes=1000, reap_slack=RECOVERY)


def busiest(workers):
    """A worker that holds something at this moment."""
    claims = Limited.objects.filter(state_claim__isnull=False).values_list("state_claim", flat=True)
    actors = Effect.objects.filter(claim__in=list(claims)).values_list("actor", flat=True)
    names = [actor.partition(":")[0] for actor in actors]
    return next((workers.alive[name] for name in names if name in workers.alive), next(iter(workers.alive.values())))


def recovered(numbers, killed, moment):
    """Seconds from a moment until as many as are allowed were held by workers that lived then."""
    dead = {actor for actor, when in killed.items() if when <= moment}
    for at, held in numbers:
        if at > moment and len([actor for actor in held.values() if actor not in dead]) == MAX_RUNNING:
            return (at - moment) / timedelta(seconds=1)
    raise AssertionError(f"after {moment} the limit was not reached again")


HELD = Job.objects.filter(state_claim__isnull=False)
# What the sessions of workers sent last that only claim, and that only record.
CLAIMS, RECORDS = "WITH picked AS", "WITH v AS"


def sessions(of=""):
    """Server processes of workers, or of those whose latest statement has this in it."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            assert not of, "the servers of MySQL do not tell the latest statement of a session"
            cursor.execute(SESSIONS_OF_MYSQL)
            return [number for (number,) in cursor.fetchall()]
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND strpos(query, %s) > 0",
            [of],
        )
        return [pid for (pid,) in cursor.fetchall()]


def take_away(role, *statements):
    """End the sessions that sent these last, and leave the role no connection in their place.

    Nor in the place of one that the worker closes later because nothing needs it.
    """
    lost = [pid for statement in statements for pid in sessions(statement)]
    assert lost
    allow(role, 1)
    for pid in lost:
        execute(f"SELECT pg_terminate_backend({pid}, 10000)")


@pytest.mark.mariadb
def test_nothing_is_held_that_could_not_be_recorded_and_renewed(fleet):
    """The limit is too low for all that a worker needs; handlers need none."""
    held = Step.objects.filter(state_claim__isnull=False)
    with role_with_connections(50) as role:
        # Nobody listens, who would take a connection as well.
        workers = fleet("testapp.Step", DATABASE_URL=url_for(role), STATOR_NOTIFY="False", STATOR_LEASE=60)
        for number in (1, 2, 3):
            Step.objects.bulk_create(Step() for _ in range(50))
            allow(role, number)
            worker = workers.start()
            workers.until(lambda worker=worker: len(logged(worker, "stator.database_unreachable")) > 3)
            # With some luck it has those that it needs, and what it holds is recorded.
            workers.until(lambda: not held.exists())
            workers.kill(worker.name)
            workers.until(lambda: not sessions())
        workers.start()
        allow(role, 50)
        workers.finish(Step)
    assert not Step.objects.filter(state_failures__gt=0).exists()


def test_outcomes_are_recorded_although_the_connection_for_that_is_lost(watch, fleet, gate):
    """By the connection that claims, which claims nothing more until there is another."""
    watched = watch(Job)
    with role_with_connections(50) as role:
        workers = fleet("testapp.Job", DATABASE_URL=url_for(role), STATOR_LEASE=60)
        worker = workers.start()
        Job.objects.create()
        workers.until_done(Job)
        Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(5))
        workers.until(lambda: HELD.count() == 5)
        take_away(role, RECORDS)
        gate.touch()
        workers.until(lambda: not HELD.exists())
        assert Job.objects.filter(state="halfway").count() == 5

        workers.until(lambda: len(logged(worker, "stator.database_unreachable")) > 3)
        assert not HELD.exists()
        allow(role, 50)
        workers.finish(Job)
    assert not logged(worker, "stator.lease_lost")
    watched.judge()


def test_worker_that_cannot_record_hands_back_what_it_holds(watch, fleet, gate):
    """Neither the connection that records nor the one that claims is left: the heartbeat renews no more."""
    watched = watch(Job)
    with role_with_connections(50) as role:
        # Soon after it has given up, its own duties may count crashes.
        workers = fleet("testapp.Job", DATABASE_URL=url_for(role), STATOR_LEASE=6, STATOR_REAP_INTERVAL=5.5)
        worker = workers.start()
        Job.objects.create()
        workers.until_done(Job)
        Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(5))
        workers.until(lambda: HELD.count() == 5)
        take_away(role, RECORDS, CLAIMS)
        gate.touch()
        workers.until(lambda: sum(line["count"] for line in logged(worker, "stator.handed_back")) == 5)

        assert not HELD.exists()
        handed_back = Job.objects.filter(state="fresh", state_attempts=1, state_crashes=0, state_failures=0)
        assert handed_back.count() == 5
        allow(role, 50)
        workers.finish(Job)
    watched.judge()


@pytest.mark.mariadb
def test_worker_that_has_nothing_to_do_has_few_connections(watch, fleet):
    """To claim, to record, for duties, for the heartbeat, and to listen; handlers open theirs when they need them."""
    few = 5 if connection.vendor == "postgresql" else 4
    watched = watch(Job)
    cut_connections()
    workers = fleet("testapp.Job", "testapp.ThreadJob", "testapp.Limited")
    worker = workers.start()
    workers.until(lambda: len(sessions()) == few)
    # One after another: it takes one thread.
    for _ in range(8):
        job = ThreadJob.objects.create()
        workers.until(lambda job=job: ThreadJob.objects.filter(pk=job.pk, state="done").exists())
    assert len(sessions()) <= few + 2
    workers.stop()
    assert not logged(worker, "stator.database_unreachable")
    watched.judge()


def test_worker_of_a_site_with_a_pool_of_four_connections_does_not_starve(watch, fleet):
    watched = watch(ThreadJob)
    ThreadJob.objects.bulk_create(ThreadJob() for _ in range(100))
    workers = fleet("testapp.ThreadJob", DJANGO_SETTINGS_MODULE="tests.pooled_settings")
    worker = workers.start("--processes", "2")
    workers.until_done(ThreadJob)
    assert logged(worker, "stator.attempt_failed") == []
    assert logged(worker, "stator.database_unreachable") == []
    workers.stop()
    watched.judge()
