"""Locks of other transactions on rows (F28) and tables, deadlocks (F33), other isolation levels (F34)."""

import os
from collections import Counter
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from time import monotonic

import pytest
from django.db import DatabaseError, connection, connections, transaction

from tests.faults.fleet import LEASE, logged
from tests.processes import wait_until
from tests.sizes import CROWDED, PATIENCE
from tests.testapp.faults import Effect, Job, JobLine, ThreadJob
from tests.testapp.harmed import Booking, Failing, Limited

pytestmark = [
    pytest.mark.fault, pytest.mark.postgresql, pytest.mark.mariadb, pytest.mark.django_db(transaction=True),
]  # fmt: skip

# What a driver gives a statement that was ended because of a deadlock.
DEADLOCK = {"postgresql": "40P01", "mysql": 1213}


class Application:
    """A connection of the application's, in transactions of its own."""

    def __init__(self, other):
        self._connection = other
        self.commit, self.rollback = other.commit, other.rollback

    def execute(self, statement, params=None):
        with self._connection.cursor() as cursor:
            cursor.execute(statement, params)


@contextmanager
def other_connection():
    """Open a connection beside that of the test."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        yield Application(other)
    finally:
        other.close()


def until_done(workers, jobs=None):
    left = (jobs or Job.objects).exclude(state="done")
    workers.until(lambda: not left.exists())


# Seconds until an object of an unlocked table is done, and until a locked one goes on once the lock is gone.
PROMPTLY, RESUMED_WITHIN = 2.0, 5.0


def test_row_that_an_application_holds_is_passed_over_and_found_afterwards(watch, fleet):
    """Not so one that gets a child; but MySQL locks the row that an insert refers to."""
    watched = watch(Job)
    held, parent, *others = [Job.objects.create() for _ in range(30)]
    is_locked = connection.vendor == "mysql"
    workers = fleet("testapp.Job")
    with other_connection() as application:
        application.execute("SELECT 1 FROM testapp_job WHERE id = %s FOR UPDATE", [held.pk])
        application.execute("INSERT INTO testapp_jobline (job_id) VALUES (%s)", [parent.pk])
        workers.start()

        until_done(workers, Job.objects.filter(pk__in=[job.pk for job in (*others, *[parent] * (not is_locked))]))

        assert not Job.objects.filter(pk__in=[held.pk, *[parent.pk] * is_locked], state_attempts__gt=0).exists()
        application.commit()
    workers.finish(Job)
    assert JobLine.objects.get().job.state == "done"
    watched.judge()


def test_moves_by_hand_and_outcomes_survive_deadlocks(watch, fleet):
    """The application writes rows in the order opposite to ours, and so runs into our moves by hand."""
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.01) for _ in range(60))
    pks = list(Job.objects.order_by("-pk").values_list("pk", flat=True))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=10)
    for _ in range(2):
        workers.start()
    enough, deadlocks, moved = Flag(), [], []

    def repeat(act, met):
        while not met():
            try:
                act()
            except DatabaseError as error:
                cause = error.__cause__
                deadlocks.append(getattr(cause, "sqlstate", cause.args[0]))
        connections.close_all()

    def write_backwards():
        with transaction.atomic():
            for pk in pks:
                Job.objects.filter(pk=pk).update(note="written")

    def move():
        moved.append(Job.transition_perform_queryset(Job.objects.all(), "fresh"))

    writer = Thread(target=repeat, args=[write_backwards, enough.is_set])
    mover = Thread(target=repeat, args=[move, lambda: moved and enough.is_set()])
    for thread in (writer, mover):
        thread.start()
    try:
        wait_until(lambda: len(deadlocks) >= 2)
    finally:
        enough.set()
        for thread in (writer, mover):
            thread.join(PATIENCE)
    workers.finish(Job)

    assert set(deadlocks) <= {DEADLOCK[connection.vendor]}
    watched.judge()


@contextmanager
def isolated_by_default(level):
    """Gives the variables of workers whose transactions have this isolation where nobody says otherwise."""
    if connection.vendor == "mysql":
        # There Django sets the isolation of each session, by default that which workers need.
        yield {"DATABASE_URL": f"{os.environ['DATABASE_URL']}?isolation_level={level.replace(' ', '%20')}"}
        return
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    try:
        yield {}
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


def test_work_is_done_whatever_the_isolation_that_the_database_defaults_to(watch, fleet):
    watched = watch(Job)
    Job.objects.bulk_create(Job() for _ in range(100))
    with isolated_by_default("serializable") as variables:
        workers = fleet("testapp.Job", STATOR_CONCURRENCY=20, **variables)
        started = [workers.start("--until-idle") for _ in range(2)]
        codes = [worker.wait() for worker in started]

    assert codes == [0, 0], workers.output()
    assert [logged(worker, "stator.database_unreachable") for worker in started] == [[], []]
    assert Job.objects.filter(state="done").count() == 100
    watched.judge()


@contextmanager
def tables_locked(*models, mode="ACCESS EXCLUSIVE"):
    """Lock tables as a migration does, or as the making of an index does with ``mode="SHARE"``."""
    tables = [model if isinstance(model, str) else model._meta.db_table for model in models]
    with other_connection() as migration:
        if connection.vendor == "mysql":
            how = "READ" if mode == "SHARE" else "WRITE"
            migration.execute(f"LOCK TABLES {', '.join(f'{table} {how}' for table in tables)}")
        else:
            migration.execute(f"LOCK TABLE {', '.join(tables)} IN {mode} MODE")
        yield
        migration.execute("UNLOCK TABLES") if connection.vendor == "mysql" else migration.commit()


def attempts_of(model):
    """How many attempts at each object have begun."""
    effects = Effect.objects.filter(label=model._meta.label_lower)
    return Counter(effects.values_list("object_pk", "state"))


def test_locked_tables_hold_up_no_other_model(watch, fleet, gate):
    """Two tables are locked for longer than the lease while rows of them are held, ready and to be recorded."""
    if connection.vendor == "mysql" and not connection.mysql_is_mariadb:
        pytest.skip("there each statement waits for a locked table for a second at least")
    locked, others = (ThreadJob, Limited), (Job, Booking, Failing)
    watched = watch(*others)
    variables = {"STATOR_LEASE": 2 * LEASE, "STATOR_MAX_CRASHES": 1000}
    workers = fleet(*(model._meta.label for model in (*locked, *others)), **variables)
    started = [workers.start() for _ in range(2)]
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(6))
    for model in locked:
        # More than are begun before the tables are locked, however long that takes.
        model.objects.bulk_create(model(seconds=0.2) for _ in range(2000))
    workers.until(lambda: all(logged(worker, "stator.ready") for worker in started))
    workers.until(lambda: all(len(attempts_of(model)) >= 6 for model in (Job, *locked)))
    delays = []
    with tables_locked(*locked):
        end = monotonic() + 2.2 * LEASE
        while monotonic() < end:
            began = monotonic()
            for model in others:
                model.objects.create()
            workers.until(lambda: not any(unfinished(model) for model in others))
            delays.append(monotonic() - began)
        before = {model: attempts_of(model) for model in locked}
    unlocked = monotonic()
    workers.until(lambda: all(attempts_of(model) > before[model] for model in locked))
    resumed = monotonic() - unlocked
    gate.touch()
    workers.until_done(*others)

    print(f"unlocked ones took up to {max(delays):.2f} s, locked ones went on after {resumed:.2f} s")
    assert set(attempts_of(Job).values()) == {1}
    assert max(delays) < PROMPTLY + CROWDED
    assert resumed < RESUMED_WITHIN + CROWDED
    assert not any(model.objects.filter(state_failures__gt=0).exists() for model in (*locked, *others))
    for worker in started:
        told = Counter(line["model"] for line in logged(worker, "stator.lock_timeout"))
        assert told == Counter(model._meta.label_lower for model in locked)
        # Leases of locked rows run out: nobody can renew them, and the first who comes afterwards may count a crash.
        labels = {model._meta.label_lower for model in others}
        loud = [line for event in QUIET for line in logged(worker, f"stator.{event}")]
        assert [line for line in loud if line.get("model", min(labels)) in labels] == []
    workers.stop()
    watched.judge()


@pytest.mark.parametrize("table", ["testapp_threadjob", "stator_stats"], ids=["its own", "the framework's"])
def test_outcomes_wait_for_a_table_that_nobody_can_write_to(watch, fleet, gate, table):
    """As while an index is built: the table is read as usual. The handler has run, and runs once."""
    watched = watch(Job, ThreadJob)
    ThreadJob.objects.bulk_create(ThreadJob(gate=str(gate)) for _ in range(3))
    workers = fleet("testapp.Job", "testapp.ThreadJob", STATOR_LEASE=60)
    worker = workers.start()
    workers.until(lambda: Effect.objects.count() == 3)
    with tables_locked(table, mode="SHARE"):
        gate.touch()
        workers.until(lambda: logged(worker, "stator.lock_timeout"))
        Job.objects.create()
        if table == "testapp_threadjob":
            workers.until_done(Job)
    unlocked = monotonic()
    workers.until_done(ThreadJob)
    resumed = monotonic() - unlocked
    workers.finish(Job)

    assert resumed < RESUMED_WITHIN + CROWDED
    assert set(attempts_of(ThreadJob).values()) == set(attempts_of(Job).values()) == {1}
    assert not ThreadJob.objects.filter(state_failures__gt=0).exists()
    assert [logged(worker, f"stator.{event}") for event in QUIET] == [[]] * len(QUIET)
    watched.judge()


# What no worker has to tell of a table that is locked.
QUIET = ("attempt_failed", "lease_lost", "leases_expired", "database_unreachable", "heartbeat_failed")


def unfinished(model):
    """Objects that are not done, but for those that wait for their gate."""
    rows = model.objects.exclude(state="done")
    return (rows.filter(gate="") if model is Job else rows).exists()
