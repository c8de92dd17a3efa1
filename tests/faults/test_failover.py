"""Read replicas: work on one is refused (F11), and one takes over that lacks the last commits of its primary (F10).

The old primary may come back. Nobody but the failover manager can tell the two apart, so workers work on either; what
they began on one they cannot write to the other.
"""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from stator.models import Worker
from tests.faults.fleet import logged
from tests.faults.proxy import Proxy
from tests.faults.servers import (
    NO_TEST_DATABASES,
    address_of,
    default_database_on,
    has_replayed,
    url_through,
    variables_for,
)
from tests.servers.user import give_to_server, open_place
from tests.testapp.faults import Effect, Event, Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def make_jobs(gate, thorough):
    """Make jobs that take no time and some that wait at the gate; how many of each."""
    quick, slow = (500, 50) if thorough else (30, 5)
    Job.objects.bulk_create(Job() for _ in range(quick))
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(slow))
    return quick, slow


def test_commits_that_a_failover_loses_are_made_again_and_their_holders_are_refused(
    own, server, standby, watch, fleet, gate, thorough, worker_process
):
    """The standby takes over as it was before any of the work; who was at work goes on by itself."""
    watched = watch(Job)
    quick, slow = make_jobs(gate, thorough)
    has_replayed(server, standby)
    with worker_process("testapp.Job", "--processes", "2", **variables_for(standby)) as refused:
        assert refused.wait() == 75
        replica = "runstator: database 'default' is a read replica (in recovery); point it at the primary"
        assert {*refused.output().splitlines()} == {replica}
    standby.stop()
    with Proxy(*address_of(server)) as proxy:
        # A lease that ends after all of this: what refuses the holders of before is their claim alone.
        workers = fleet("testapp.Job", STATOR_LEASE=60, **NO_TEST_DATABASES, DATABASE_URL=url_through(proxy, server))
        started = [workers.start() for _ in range(2)]
        # One that is not there yet would refuse to start on what is a replica then.
        workers.until(lambda: Worker.objects.live().count() == len(started))
        workers.until(lambda: Job.objects.filter(state="done").count() == quick)
        workers.until(lambda: Effect.objects.filter(state="fresh").count() == quick + slow)

        with taken_over(server, standby):
            # Whoever comes too soon finds a server that can only be read.
            proxy.lead_to(*address_of(standby))
            proxy.cut()
            workers.until(lambda: refused_to_write(started))
            assert set(Job.objects.values_list("state", "state_attempts")) == {("fresh", 0)}
            standby.promote()
            # Each is attempted once more, beside those who began it on the other server.
            workers.until(lambda: Effect.objects.filter(state="fresh").count() == quick + slow)
            gate.touch()
            workers.finish(Job)
            watched.judge()
            assert Effect.objects.count() == 2 * (quick + slow)


@pytest.fixture
def backup(own, server):
    """Takes a copy of the server of the test as it is now: ``with backup() as copy``."""

    @contextmanager
    def take():
        connection.close()
        server.stop()
        with tempfile.TemporaryDirectory(prefix="stator-copy-", dir=open_place()) as folder:
            Path(folder).chmod(0o711)
            copy = type(server)(shutil.copytree(server.data_dir, Path(folder) / "data"), options=server.options)
            for path in (copy.data_dir, *copy.data_dir.rglob("*")):
                give_to_server(path)
            server.start()
            try:
                yield copy
            finally:
                copy.remove()

    return take


@pytest.mark.mariadb
@pytest.mark.skipif("connection.vendor == 'postgresql'", reason="PostgreSQL has a standby in its place")
def test_commits_that_a_backup_lacks_are_made_again_and_their_holders_are_refused(
    own, server, backup, watch, fleet, gate, thorough
):
    """A server takes over with the data of before any of the work; who was at work goes on by itself."""
    watched = watch(Job)
    quick, slow = make_jobs(gate, thorough)
    with backup() as copy, Proxy(*address_of(server)) as proxy:
        workers = fleet("testapp.Job", STATOR_LEASE=60, **NO_TEST_DATABASES, DATABASE_URL=url_through(proxy, server))
        for _ in range(2):
            workers.start()
        workers.until(lambda: Job.objects.filter(state="done").count() == quick)
        workers.until(lambda: Effect.objects.filter(state="fresh").count() == quick + slow)
        with taken_over(server, copy):
            proxy.lead_to(*address_of(copy))
            proxy.cut()
            workers.until(lambda: Effect.objects.filter(state="fresh").count() == quick + slow)
            gate.touch()
            workers.finish(Job)
            watched.judge()
            assert Effect.objects.count() == 2 * (quick + slow)


def test_work_that_was_begun_on_an_old_primary_that_came_back_is_refused_on_the_new_one(
    own, server, standby, watch, fleet, gate
):
    """The address of the workers leads to the new primary, to the old one, back and forth; both can be written to."""
    watched = watch(ThreadJob)
    ThreadJob.objects.bulk_create(ThreadJob() for _ in range(20))
    has_replayed(server, standby)
    standby.stop()
    # Such keys that no sequence of either server gives them.
    pks = range(1001, 1006)
    with Proxy(*address_of(server)) as proxy:
        address = {**NO_TEST_DATABASES, "DATABASE_URL": url_through(proxy, server)}
        # Room for those that wait at the gate, some of them several times.
        workers = fleet("testapp.ThreadJob", STATOR_THREADS=30, STATOR_MAX_CRASHES=1000, **address)
        started = [workers.start() for _ in range(2)]
        workers.until_done(ThreadJob)

        with taken_over(server, standby):
            standby.promote()
            lead(workers, proxy, standby)
            workers.until_done(ThreadJob)
            server.start()
            with default_database_on(server):
                lead(workers, proxy, server)
                begin(workers, pks, gate)
            lead(workers, proxy, standby)
            # The same keys, states and versions: what tells these claims from those is their id alone.
            begin(workers, pks, gate)
            with default_database_on(server):
                lead(workers, proxy, server)
            lead(workers, proxy, standby)

            gate.touch()
            workers.until_done(ThreadJob)
            workers.stop()
            sort_starts(server, watched)
            watched.judge(max_crashes=1000)
            assert set(ThreadJob.objects.values_list("state", "state_version")) == {("done", 2)}
            # The claims of another server end before their leases have run out by the clock of the worker.
            events = ("stator.lease_lost", "stator.claim_ended")
            refused = {line["pk"] for worker in started for event in events for line in logged(worker, event)}
            assert {str(pk) for pk in pks} <= refused
            with default_database_on(server):
                assert set(ThreadJob.objects.filter(pk__in=pks).values_list("state", "state_version")) == {("fresh", 0)}


def lead(workers, proxy, server):
    """Have the address of the workers lead to a server, and wait until each worker has recorded an outcome there.

    A worker whose connection breaks while it records cannot tell its outcome from another claim's on the same key,
    state and version, and reports neither as refused.
    """
    proxy.lead_to(*address_of(server))
    proxy.cut()
    with default_database_on(server):
        known = max(Event.objects.values_list("pk", flat=True), default=0)
        done = Event.objects.filter(pk__gt=known, label="testapp.threadjob", new__state="done")

        def has_each_recorded():
            ThreadJob.objects.create()
            return {actor.partition(":")[0] for actor in done.values_list("actor", flat=True)} == set(workers.alive)

        workers.until(has_each_recorded)


def begin(workers, pks, gate):
    """Make objects with these keys, and wait until a handler of each is at the gate."""
    ThreadJob.objects.bulk_create(ThreadJob(pk=pk, gate=str(gate)) for pk in pks)
    begun = Effect.objects.filter(label="testapp.threadjob", object_pk__in=list(map(str, pks)))
    workers.until(lambda: begun.values("object_pk").distinct().count() == len(pks))


def sort_starts(server, watched):
    """Have each start where its claim was made: a handler may start after the address of its worker has changed."""
    with default_database_on(server):
        claims = {event.new.claim for event in watched.history(ThreadJob).events if event.new and event.new.claim}
        astray = list(Effect.objects.exclude(claim__in=claims))
    Effect.objects.filter(claim__in=claims).delete()
    for effect in astray:
        effect.pk = None
    Effect.objects.bulk_create(astray)


@contextmanager
def taken_over(server, standby):
    """The server gone without a farewell, and in its place the standby, which is not promoted yet."""
    connection.close()
    server.stop("immediate")
    try:
        standby.start()
        with default_database_on(standby):
            yield
    finally:
        server.start()


def refused_to_write(workers):
    """Whether each has met a server that lets nobody write."""
    return all(
        "InternalError" in {line["error"] for line in logged(worker, "stator.database_unreachable")}
        for worker in workers
    )
