"""Workers behind pgbouncer in transaction mode (F12): nothing hangs on a session, and polling takes over."""

import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection, connections

from stator.db.session import session_of
from tests.faults.fleet import logged
from tests.faults.test_limits import sessions
from tests.faults.test_wakeup import delay_of
from tests.processes import wait_until
from tests.servers.user import as_server, free_port, give_to_server, open_place
from tests.sizes import CROWDED
from tests.testapp.faults import Effect, Job, ThreadJob
from tests.testapp.harmed import Booking

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

POOL_SIZE = 2
# What clients of the pooler need: any user of the machine reaches its port.
PASSWORD = secrets.token_hex(16)
CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 100
server_reset_query_always = 0
"""


@pytest.fixture
def pooler(transactional_db):
    """A pooler before the database of the test; gives the variables that send workers there."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed; on Debian and Ubuntu: apt install pgbouncer")
    with pgbouncer(program) as port:
        yield {"DATABASE_URL": f"postgresql://{connection.settings_dict['USER']}:{PASSWORD}@127.0.0.1:{port}/by-name"}


@contextmanager
def pgbouncer(program):
    given = connection.get_connection_params()
    own_port = free_port()
    place = Path(tempfile.mkdtemp(prefix="stator-pooler-", dir=open_place()))
    configuration, users = place / "pgbouncer.ini", place / "users"
    values = {"user": given["user"], "password": given.get("password") or "none", "pool_size": POOL_SIZE}
    values |= {"host": given["host"], "port": given["port"] or 5432, "own_port": own_port, "users": users}
    configuration.write_text(CONFIGURATION.format(**values))
    users.write_text(f'"{given["user"]}" "{PASSWORD}"\n')
    give_to_server(place)
    # In a file: nobody reads a pipe, and one that is full would stop it.
    with (place / "log").open("w") as log:
        process = subprocess.Popen([program, str(configuration)], stdout=log, stderr=log, **as_server())
    try:
        wait_until(lambda: process.poll() is not None or answers(own_port), message=(place / "log").read_text)
        assert process.poll() is None, (place / "log").read_text()
        yield own_port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(place, ignore_errors=True)


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def prepares_through(url):
    """Whether a session through the pooler would keep prepared statements, and one without would."""
    host, _, port = urlsplit(url).netloc.rpartition("@")[2].partition(":")
    own = connections["default"]
    other = own.copy("pooled")
    other.settings_dict = {**own.settings_dict, "HOST": host, "PORT": port, "PASSWORD": PASSWORD}
    try:
        assert session_of(own).prepares
        return session_of(other).prepares
    finally:
        other.close()


def test_work_is_done_through_a_pooler_and_polling_finds_what_no_notification_tells(pooler, watch, fleet, thorough):
    objects = 1000 if thorough else 20
    models = (Job, ThreadJob, Booking)
    watched = watch(*models)
    for model in models:
        model.objects.bulk_create(model(seconds=0.01) for _ in range(objects))
    workers = fleet(*(model._meta.label for model in models), STATOR_POLL_INTERVAL=0.5, STATOR_LEASE=60, **pooler)
    # Told by the driver while it connects: what is set on a session would be left to whoever has it next.
    started = [workers.start(PGAPPNAME=f"worker{number}:pooled") for number in range(2)]

    workers.until_done(*models)
    delays = [delay_of(workers, watched, Job.objects.create()) for _ in range(5)]
    workers.until_done(Job)

    assert all(workers.starts(worker).exists() for worker in started)
    assert Effect.objects.count() == 2 * (3 * objects + 5)
    assert len(sessions()) <= POOL_SIZE
    assert not prepares_through(pooler["DATABASE_URL"])
    workers.stop()
    print(f"behind the pooler objects were begun within {max(delays):.2f} s")
    assert max(delays) < 0.5 * 1.2 + 1 + CROWDED
    for event in ("stator.database_unreachable", "stator.attempt_failed", "stator.lease_lost"):
        assert [logged(worker, event) for worker in started] == [[], []]
    watched.judge()
