"""Servers that belong to a test, which may crash them, workers on them, and roles with few connections."""

import random
import secrets
from contextlib import closing, contextmanager, suppress
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.db import OperationalError, connection, connections
from django.utils.timezone import is_naive, make_aware

from tests.processes import wait_until
from tests.projects import is_mariadb
from tests.servers import mariadb, mysql, postgres
from tests.servers.postgres.programs import version_of_programs
from tests.servers.user import DATABASE

if connection.vendor == "mysql":
    import MySQLdb as Database

ROLE_PASSWORD = secrets.token_hex(16)
NO_TEST_DATABASES = {"TEST_DATABASE_DEFAULT": "", "TEST_DATABASE_OTHER": ""}
CLOCKS = {"postgresql": "SELECT clock_timestamp()", "mysql": "SELECT SYSDATE(6)"}
# On this database, but ours.
SESSIONS_OF_MYSQL = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
# The queue of notifications as small as it can be made, so that it can be filled; before version 17 it has 8 GB.
HAS_SMALL_QUEUE = connection.vendor == "postgresql" and version_of_programs() >= 17
OPTIONS = {"shared_buffers": "32MB", **({"max_notify_queue_pages": 64} if HAS_SMALL_QUEUE else {})}


def new_server() -> Any:
    """A server of the kind that is tested; give it to ``with``."""
    if connection.vendor == "mysql":
        return (mariadb if is_mariadb() else mysql).temporary_server({"innodb_buffer_pool_size": "64M"})
    return postgres.temporary_server(OPTIONS)


def variables_for(server: Any) -> dict[str, str]:
    """Return the settings that send workers to a server."""
    return {"DATABASE_URL": server.url(), **NO_TEST_DATABASES}


def address_of(server: Any) -> tuple[str, int]:
    """Host and port of a server."""
    parts = urlsplit(server.url())
    return parts.hostname, parts.port


def has_replayed(server, standby):
    """Wait until the standby has all that was committed."""
    with psycopg.connect(server.url()) as here, psycopg.connect(standby.url(), autocommit=True) as there:
        (end,) = here.execute("SELECT pg_current_wal_lsn()").fetchone()
        wait_until(lambda: there.execute("SELECT pg_last_wal_replay_lsn() >= %s", [end]).fetchone()[0])


def url_through(proxy: Any, server: Any) -> str:
    """The URL of a server by way of a proxy before it."""
    parts = urlsplit(server.url())
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()


def _settings_for(server: Any) -> dict[str, str]:
    """Return the settings of a Django database on a server."""
    host, port = address_of(server)
    user = urlsplit(server.url()).username
    return {"NAME": DATABASE, "USER": user, "PASSWORD": server.password, "HOST": host, "PORT": str(port)}


def default_database_on(server: Any) -> Any:
    """Has the default database of this process on a server, and then where it was."""
    return database_on("default", server)


@contextmanager
def database_on(alias: str, server: Any) -> Any:
    """Has a database of this process on a server, and then where it was."""
    moved = connections[alias]
    before = dict(moved.settings_dict)
    moved.close()
    moved.settings_dict.update(_settings_for(server))
    try:
        yield
    finally:
        moved.close()
        moved.settings_dict.update(before)


@contextmanager
def role_with_connections(number):
    """A role that may do what workers do, and no superuser: those are let in whatever the limit."""
    name = f"limited_{random.getrandbits(32):08x}"
    with (_user_of_mysql if connection.vendor == "mysql" else _role_of_postgresql)(name):
        allow(name, number)
        try:
            yield name
        finally:
            cut_connections()


@contextmanager
def _role_of_postgresql(name):
    execute(f"CREATE ROLE {name} LOGIN PASSWORD '{ROLE_PASSWORD}'")
    for what in ("ALL TABLES", "ALL SEQUENCES"):
        execute(f"GRANT ALL ON {what} IN SCHEMA public TO {name}")
    try:
        yield
    finally:
        execute(f"DROP OWNED BY {name}")
        execute(f"DROP ROLE {name}")


@contextmanager
def _user_of_mysql(name):
    execute(f"CREATE USER {name} IDENTIFIED BY '{ROLE_PASSWORD}'")
    execute(f"GRANT ALL ON {connection.ops.quote_name(connection.settings_dict['NAME'])}.* TO {name}")
    given = connection.get_connection_params()
    try:
        # It uses one connection itself, because a limit of none would mean any number.
        with closing(Database.connect(host=given["host"], port=given["port"], user=name, password=ROLE_PASSWORD)):
            yield
    finally:
        execute(f"DROP USER {name}")


def allow(role, number):
    """Let a role have so many connections from now on; the database's time afterwards."""
    if connection.vendor == "mysql":
        execute(f"ALTER USER {role} WITH MAX_USER_CONNECTIONS {number + 1}")
    else:
        execute(f"ALTER ROLE {role} CONNECTION LIMIT {number}")
    return now()


def url_for(role):
    """The URL by which a role comes to the database of the test."""
    given, scheme = connection.get_connection_params(), "mysql" if connection.vendor == "mysql" else "postgresql"
    return f"{scheme}://{role}:{ROLE_PASSWORD}@{given['host']}:{given['port']}/by-name"


def now():
    """The database's time."""
    moment = execute(CLOCKS[connection.vendor])
    return make_aware(moment, UTC) if is_naive(moment) else moment


def execute(statement):
    """The first value that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def cut_connections():
    """End every connection to this database but ours; how many there were."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            return _kill_on_mysql(cursor, "CONNECTION")
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


def cancel_statements(share):
    """Cancel this share of the statements that are executed at this moment, but ours; how many it were."""
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            return _kill_on_mysql(cursor, "QUERY", f"command = 'Query' AND RAND() < {share}")
        cursor.execute(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state = 'active' AND random() < %s",
            [share],
        )
        return cursor.fetchone()[0]


def _kill_on_mysql(cursor, what, condition="TRUE"):
    cursor.execute(f"{SESSIONS_OF_MYSQL} AND {condition}")
    numbers = [number for (number,) in cursor.fetchall()]
    for number in numbers:
        # Some end meanwhile by themselves.
        with suppress(OperationalError):
            cursor.execute(f"KILL {what} %s", [number])
    return len(numbers)
