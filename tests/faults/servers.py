"""PostgreSQL servers that belong to a test, which may crash them, and workers on them."""

from contextlib import contextmanager
from typing import Any

from django.db import connection

from project.postgres import DATABASE

NO_TEST_DATABASES = {"TEST_DATABASE_DEFAULT": "", "TEST_DATABASE_OTHER": ""}
# The queue of notifications as small as it can be made, so that it can be filled.
OPTIONS = {"shared_buffers": "32MB", "max_notify_queue_pages": 64}


def variables_for(server: Any) -> dict[str, str]:
    """Those that send workers to a server."""
    return {"DATABASE_URL": server.url(), **NO_TEST_DATABASES}


def address_of(server: Any) -> tuple[str, int]:
    """Host and port of a server."""
    host, port = server.url().split("@")[1].split("/")[0].split(":")
    return host, int(port)


@contextmanager
def default_database_on(server: Any) -> Any:
    """Has the default database of this process on a server, and then where it was."""
    before = dict(connection.settings_dict)
    host, port = address_of(server)
    connection.close()
    connection.settings_dict.update(NAME=DATABASE, USER="postgres", HOST=host, PORT=str(port))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)
