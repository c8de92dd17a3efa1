"""Read replicas: work on one is refused (F11), and one takes over that lacks the last commits of its primary (F10)."""

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
from tests.testapp.faults import Effect, Job

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
