"""Databases that go away under load: a server that crashes, connections that are cut. Workers stay and go on."""

import random
from contextlib import closing, contextmanager
from threading import Event as Flag
from time import monotonic

import psutil
import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from tests.faults.events import Kind
from tests.faults.fleet import logged
from tests.faults.servers import (
    HAS_SMALL_QUEUE,
    allow,
    cancel_statements,
    cut_connections,
    execute,
    now,
    role_with_connections,
    url_for,
)
from tests.processes import wait_until
from tests.projects import is_mariadb
from tests.sizes import CROWDED, PATIENCE
from tests.testapp.faults import Effect, Job, ThreadJob
from tests.testapp.harmed import Booking

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

RESUMED_WITHIN = 5.0


def crash(server):
    """Crash the server and start it; its time when it answered again."""
    server.restart("immediate")
    connection.close()
    return now()


def first_claim(watched, model, moment):
    """When something was claimed after a moment."""
    claims = watched.history(model).of(Kind.CLAIM)
    return next((event.at for event in claims if event.at > moment), None)


@pytest.mark.mariadb
def test_work_resumes_when_the_server_has_crashed(own, watch, fleet, server, thorough):
    crashes = 10 if thorough else 1
    watched = watch(Job)
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=6, STATOR_MAX_CRASHES=1000, **own)
    started = [workers.start() for _ in range(3)]
    waits = []

    for _ in range(crashes):
        # So many that there is always something to claim that nobody held at the time of the crash.
        Job.objects.bulk_create(Job(seconds=random.uniform(0.05, 0.4)) for _ in range(150))
        before = Effect.objects.count()
        workers.until(lambda before=before: Effect.objects.count() > before + 10)
        # A worker that finds no database when it starts says so and ends.
        workers.until(lambda: all(workers.starts(worker).exists() for worker in started))
        up = crash(server)
        waits.append((workers.until(lambda up=up: first_claim(watched, Job, up)) - up).total_seconds())
    workers.finish(Job, timeout=180)

    print(f"{crashes} crashes; work went on after {', '.join(f'{wait:.1f}' for wait in waits)} s")
    assert max(waits) <= RESUMED_WITHIN + CROWDED
    assert Job.objects.filter(state="done").count() == 150 * crashes
    assert all(logged(worker, "stator.database_unreachable") for worker in started)
    watched.judge(max_crashes=1000)


@pytest.mark.mariadb
def test_processes_that_die_while_the_database_is_away_are_replaced_when_it_is_back(own, watch, fleet, server):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=60) for _ in range(8))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=4, STATOR_MAX_CRASHES=1000, **own)
    supervisor = workers.start("--processes", "2")
    workers.until(lambda: workers.starts(supervisor).count() == 8)
    connection.close()
    server.stop("immediate")
    for process in psutil.Process(supervisor.pid).children():
        process.kill()
    workers.until(lambda: 75 in {died["exit_code"] for died in logged(supervisor, "stator.worker_died")})

    server.start()
    Job.objects.update(seconds=0)

    workers.finish(Job)
    watched.judge(max_crashes=1000)


@pytest.mark.mariadb
def test_worker_whose_connection_is_cut_while_it_starts_goes_on(watch, fleet):
    watched = watch(Job)
    Job.objects.create()
    workers = fleet("testapp.Job")
    worker = workers.start("--processes", "2")

    for _ in range(3):
        wait_until(cut_connections)
    workers.until_done(Job)

    assert not logged(worker, "stator.worker_died")
    workers.stop()
    watched.judge(max_crashes=1000)


# As ``idle_session_timeout`` does, and many a firewall: a worker's own threads are used once a second.
RESTING = """
SELECT count({}) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state = 'idle'
  AND state_change < clock_timestamp() - interval '3 seconds'
"""


def test_sessions_that_the_server_ends_while_they_rest_fail_no_attempt(watch, fleet):
    watched = watch(ThreadJob)
    workers = fleet("testapp.ThreadJob")
    worker = workers.start()

    def work():
        ThreadJob.objects.bulk_create(ThreadJob(seconds=0.2) for _ in range(30))
        workers.until_done(ThreadJob)

    def resting(what):
        with connection.cursor() as cursor:
            cursor.execute(RESTING.format(what))
            return cursor.fetchone()[0]

    work()
    workers.until(lambda: resting("pid") >= 5)
    resting("pg_terminate_backend(pid)")
    work()

    assert logged(worker, "stator.attempt_failed") == []
    workers.stop()
    watched.judge()


@pytest.mark.mariadb
@pytest.mark.skipif("connection.vendor == 'postgresql'", reason="a replica of PostgreSQL is in test_failover.py")
def test_worker_refuses_to_start_on_a_server_that_takes_no_writes(own, server, worker_process):
    server.execute("SET GLOBAL read_only = 1")
    try:
        with worker_process("testapp.Job", **own) as worker:
            assert worker.wait() == 75
            told = worker.output()
    finally:
        server.execute("SET GLOBAL read_only = 0")
    assert told == "runstator: database 'default' is a read replica (read_only is on); point it at the primary\n"


@pytest.mark.mariadb
def test_work_goes_on_while_connections_are_cut(watch, fleet, thorough):
    cut_for = 30.0 if thorough else 2.0
    watched = watch(ThreadJob)
    ThreadJob.objects.bulk_create(ThreadJob(seconds=random.uniform(0.0, 0.2)) for _ in range(4000 if thorough else 200))
    workers = fleet("testapp.ThreadJob", STATOR_CONCURRENCY=6, STATOR_THREADS=6, STATOR_MAX_CRASHES=1000)
    for _ in range(2):
        workers.start()
    workers.until(lambda: Effect.objects.exists())
    before, counts, end = moved(ThreadJob), [], monotonic() + cut_for

    # On a crowded machine a worker may take longer to connect than the pause between two cuts, so pauses differ.
    while monotonic() < end or (moved(ThreadJob) == before and monotonic() < end + PATIENCE):
        counts.append(cut_connections())
        Flag().wait(random.uniform(0.1, 1.0))

    progress = moved(ThreadJob) - before
    workers.finish(ThreadJob, timeout=180)
    print(f"{sum(counts)} connections were cut, up to {max(counts)} at a time; meanwhile {progress} moves")
    assert progress > 0
    # Of each worker: the main thread, three for statements, the heartbeat, the listener, one or six for handlers. On a
    # crowded machine, those that were cut last are still ending.
    assert max(counts) <= 2 * 2 * 12
    watched.judge(max_crashes=1000)


@pytest.mark.mariadb
def test_work_resumes_when_there_are_connections_again(watch, fleet):
    """A worker that has lost its connections and gets no others stays, and goes on within five seconds."""
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.1) for _ in range(200))
    with role_with_connections(50) as role:
        workers = fleet("testapp.Job", STATOR_CONCURRENCY=2, STATOR_MAX_CRASHES=1000, DATABASE_URL=url_for(role))
        worker = workers.start()
        workers.until(lambda: workers.starts(worker).exists())
        allow(role, 0)
        cut_connections()
        workers.until(lambda: len(logged(worker, "stator.database_unreachable")) > 3)

        allowed = allow(role, 50)
        wait = workers.until(lambda: first_claim(watched, Job, allowed)) - allowed

        Job.objects.update(seconds=0)
        workers.finish(Job)
    assert wait.total_seconds() <= RESUMED_WITHIN + CROWDED
    watched.judge(max_crashes=1000)


@pytest.mark.mariadb
def test_work_goes_on_while_statements_are_cancelled(watch, fleet, thorough):
    """As statement_timeout and lock_timeout do it, at any moment."""
    watched = watch(ThreadJob)
    ThreadJob.objects.bulk_create(ThreadJob(seconds=random.uniform(0.0, 0.1)) for _ in range(300))
    workers = fleet("testapp.ThreadJob", STATOR_CONCURRENCY=6, STATOR_MAX_CRASHES=1000)
    for _ in range(2):
        workers.start()
    workers.until(lambda: Effect.objects.exists())
    before, end = moved(ThreadJob), monotonic() + (30.0 if thorough else 2.0)

    cancelled = 0
    # On a busy machine every statement may take longer than it is left alone, so some are passed over.
    while monotonic() < end or ((cancelled <= 10 or moved(ThreadJob) == before) and monotonic() < end + PATIENCE):
        cancelled += cancel_statements(0.3)
        Flag().wait(0.005)

    assert cancelled > 10
    assert moved(ThreadJob) > before
    workers.finish(ThreadJob)
    watched.judge(max_crashes=1000)


@contextmanager
def idle_for_at_most(seconds):
    """The server ends new sessions whose transaction does nothing for so long."""
    if connection.vendor == "mysql" and not is_mariadb():
        pytest.skip("MySQL has no such limit")
    if connection.vendor == "mysql":
        execute(f"SET GLOBAL idle_transaction_timeout = {seconds}")
        undo = "SET GLOBAL idle_transaction_timeout = 0"
    else:
        database = connection.ops.quote_name(connection.settings_dict["NAME"])
        execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '{seconds}s'")
        undo = f"ALTER DATABASE {database} RESET idle_in_transaction_session_timeout"
    try:
        yield
    finally:
        execute(undo)


@pytest.mark.mariadb
def test_handler_whose_transaction_idles_too_long_for_the_server_fails_and_holds_no_lock(watch, fleet):
    watched = watch(Booking)
    slow, *quick = [Booking.objects.create(seconds=2.0 if number == 0 else 0.0) for number in range(20)]
    workers = fleet("testapp.Booking")
    with idle_for_at_most(1):
        workers.start()
        workers.until(lambda: Booking.objects.filter(state="done").count() == len(quick))
        workers.until(lambda: Booking.objects.filter(pk=slow.pk, state_failures__gte=1, state_claim=None).exists())
        workers.stop()
    Booking.objects.update(seconds=0)
    workers.start()
    workers.finish(Booking)
    assert not Booking.objects.exclude(booked=2).exists()
    assert Effect.objects.count() == 2 * 20
    watched.judge()


@pytest.mark.skipif(not HAS_SMALL_QUEUE, reason="before version 17 the queue has 8 GB")
def test_full_queue_of_notifications_fails_no_transaction_of_an_application_and_no_worker(own, watch, fleet):
    watched = watch(Job)
    with closing(psycopg.connect(own["DATABASE_URL"])) as listener:
        # Who listens and does not come out of a transaction keeps the queue from being emptied.
        listener.execute("LISTEN stator")
        listener.commit()
        listener.execute("SELECT 1")
        with pytest.raises(OperationalError, match="NOTIFY queue"):
            fill_queue()

        Job.objects.create()
        with transaction.atomic():
            Job.objects.create()
        workers = fleet("testapp.Job", **own)
        worker = workers.start()
        workers.until(lambda: Job.objects.filter(state="done").count() == 2)
        Job.objects.create()
        workers.until(lambda: Job.objects.filter(state="done").count() == 3)
        workers.stop()
    assert worker.returncode == 0
    watched.judge()


def fill_queue():
    for _ in range(1000):
        execute(f"SELECT pg_notify('stator', '{'x' * 7900}')")


def moved(model):
    return sum(model.objects.values_list("state_version", flat=True))
