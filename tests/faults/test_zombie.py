"""A worker that is stopped past the end of its lease and then goes on (F2): whatever it writes is refused and told."""

import signal
import sqlite3
from threading import Event

import pytest
from django.db import connection

from tests.faults.fleet import RECOVERY, logged
from tests.processes import wait_until
from tests.testapp.faults import Job, Stubborn

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

QUICK = {"STATOR_LEASE": 2, "STATOR_REAP_INTERVAL": 0.5, "STATOR_SHUTDOWN_TIMEOUT": 2}


def stopped_in_a_handler(workers):
    """A worker that stands still since its handler began; on PostgreSQL perhaps in a transaction, as of a heartbeat."""
    zombie = workers.start()
    workers.until(lambda: workers.starts(zombie).exists())
    workers.until(lambda: stop_outside_of_transactions(zombie))
    return zombie


def is_in_a_transaction():
    """Whether another session of this database of MariaDB or MySQL has a transaction open."""
    # Its list of transactions is made anew only when nobody has read it for 0.1 s.
    Event().wait(0.15)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.innodb_trx JOIN information_schema.processlist"
            " ON id = trx_mysql_thread_id WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return cursor.fetchone()[0] > 0


def stop_outside_of_transactions(zombie):
    """Stop it, but not with a lock that would stop everybody: SQLite has only one for writers."""
    zombie.stand_still()
    # PostgreSQL ends a transaction that rests, MariaDB does not.
    if connection.vendor == "mysql" and is_in_a_transaction():
        awaken(zombie)
        return False
    if connection.vendor != "sqlite":
        return True
    probe = sqlite3.connect(connection.settings_dict["NAME"], timeout=0.2, isolation_level=None)
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        awaken(zombie)
        return False
    finally:
        probe.close()
    return True


def awaken(zombie):
    zombie.send(signal.SIGCONT)


def refused(zombie):
    return logged(zombie, "stator.lease_lost")


def end(workers, zombie, watched, model):
    """Wait for the zombie's report and the end of all work, then judge."""
    workers.until(lambda: refused(zombie))
    workers.finish(model)
    assert [line["state"] for line in refused(zombie)] == ["fresh"]
    watched.judge(reap_slack=RECOVERY)


def test_zombie_that_awakes_when_another_has_finished(watch, fleet, gate):
    watched = watch(Job)
    job = Job.objects.create(gate=str(gate))
    workers = fleet("testapp.Job", **QUICK)
    zombie = stopped_in_a_handler(workers)
    gate.touch()
    other = workers.start(STATOR_LEASE=60)
    workers.until(lambda: Job.objects.filter(state="done").exists())

    awaken(zombie)

    end(workers, zombie, watched, Job)
    job.refresh_from_db()
    assert job.state_version == 2
    assert workers.starts(other).count() == 2


@pytest.mark.postgresql
def test_worker_that_stands_still_in_a_transaction_of_its_own_does_not_hold_up_the_others(watch, fleet, gate):
    watched = watch(Job)
    Job.objects.create(gate=str(gate))
    workers = fleet("testapp.Job", **QUICK, STATOR_SCHEDULE_INTERVAL=0.05)
    zombie = workers.start()
    workers.until(lambda: workers.starts(zombie).exists())
    workers.until(lambda: stop_inside_a_transaction(zombie))
    gate.touch()
    other = workers.start(STATOR_SCHEDULE_INTERVAL=0.5, STATOR_LEASE=60)

    # With a lock that nobody takes from it they would wait for ever; a crowded machine takes its time to start one.
    workers.until(lambda: Job.objects.filter(state="done").exists())

    assert workers.starts(other).count() == 2
    awaken(zombie)
    end(workers, zombie, watched, Job)


def stop_inside_a_transaction(zombie):
    """Stop it while the database waits for the next statement of one of its transactions."""
    zombie.stand_still()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = %s AND state = 'idle in transaction'",
            [f"{zombie.name}:{zombie.pid}"],
        )
        inside = cursor.fetchone()[0]
    if not inside:
        awaken(zombie)
    return bool(inside)


def test_handler_that_will_not_be_cancelled_is_given_up_and_writes_nothing(watch, fleet, gate):
    """F16: past max_runtime it is cancelled, ignores that, and is abandoned; what it does later finds no claim."""
    watched = watch(Stubborn)
    stubborn = Stubborn.objects.create(gate=str(gate))
    workers = fleet("testapp.Stubborn")
    worker = workers.start()
    workers.until(lambda: logged(worker, "stator.attempt_abandoned"))
    wait_until(lambda: Stubborn.objects.filter(state_claim=None, state_failures=1).exists())

    gate.touch()

    assert wait_until(gate.read_text) == "LeaseLost"
    workers.stop()
    stubborn.refresh_from_db()
    assert (stubborn.note, stubborn.state, stubborn.state_crashes) == ("", "fresh", 0)
    watched.judge(external=frozenset({"fresh"}))
