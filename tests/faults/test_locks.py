"""Other transactions on the same rows: locks held for long (F28), deadlocks (F33), other isolation levels (F34)."""

from contextlib import closing
from threading import Event as Flag
from threading import Thread

import psycopg
import pytest
from django.db import DatabaseError, connection, connections, transaction

from tests.faults.fleet import logged
from tests.processes import wait_until
from tests.testapp.faults import Effect, Job, JobLine

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def other_connection():
    """A connection of the application's, beside that of the test."""
    return closing(psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}))


def until_done(workers, jobs=None):
    left = (jobs or Job.objects).exclude(state="done")
    workers.until(lambda: not left.exists())


def test_row_that_an_application_holds_is_passed_over_and_found_afterwards(watch, fleet):
    watched = watch(Job)
    held, *others = [Job.objects.create() for _ in range(30)]
    workers = fleet("testapp.Job")
    with other_connection() as application:
        application.execute("SELECT 1 FROM testapp_job WHERE id = %s FOR UPDATE", [held.pk])
        workers.start()

        until_done(workers, Job.objects.filter(pk__in=[job.pk for job in others]))

        assert Job.objects.get(pk=held.pk).state_attempts == 0
        application.rollback()
    until_done(workers)
    workers.stop()
    watched.judge()


def test_outcome_of_a_row_that_an_application_holds_waits_without_holding_up_others(watch, fleet, gate):
    watched = watch(Job)
    held = Job.objects.create(gate=str(gate))
    workers = fleet("testapp.Job")
    worker = workers.start()
    workers.until(lambda: Effect.objects.exists())
    with other_connection() as application:
        application.execute("SELECT 1 FROM testapp_job WHERE id = %s FOR UPDATE", [held.pk])
        gate.touch()
        others = [Job.objects.create(seconds=0.5) for _ in range(5)]

        until_done(workers, Job.objects.filter(pk__in=[job.pk for job in others]))

        assert Job.objects.get(pk=held.pk).state == "fresh"
        application.rollback()
    until_done(workers)
    workers.stop()
    assert logged(worker, "stator.lease_lost") == []
    watched.judge()


def test_row_is_claimed_while_somebody_inserts_a_child(watch, fleet):
    watched = watch(Job)
    job = Job.objects.create()
    workers = fleet("testapp.Job")
    with other_connection() as application:
        application.execute("INSERT INTO testapp_jobline (job_id) VALUES (%s)", [job.pk])
        workers.start()

        until_done(workers)

        application.commit()
    workers.stop()
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
                deadlocks.append(error.__cause__.sqlstate)
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
        wait_until(lambda: len(deadlocks) >= 2, 60)
    finally:
        enough.set()
        for thread in (writer, mover):
            thread.join(30)
    until_done(workers)
    workers.stop()

    assert set(deadlocks) <= {"40P01"}
    watched.judge()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_work_is_done_whatever_the_isolation_that_the_database_defaults_to(watch, fleet, level):
    watched = watch(Job)
    Job.objects.bulk_create(Job() for _ in range(200))
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=20)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    try:
        started = [workers.start("--until-idle") for _ in range(3)]
        codes = [worker.wait(60) for worker in started]
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")

    assert codes == [0, 0, 0], workers.output()
    assert [logged(worker, "stator.database_unreachable") for worker in started] == [[], [], []]
    assert Job.objects.filter(state="done").count() == 200
    watched.judge()
