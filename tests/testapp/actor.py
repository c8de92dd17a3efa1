"""The author of each write, as the triggers of the fault tests see it: a worker process, or an operator."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

OPERATOR = "operator"

# A process that attempts an object for its worker acts by the claim of that.
PID = os.getppid() if Path(sys.argv[0]).parts[-2:] == ("isolation", "__main__.py") else None

_acting = threading.local()


def actor() -> str:
    """The name given to this process and its number, so that forked workers differ; or an operator."""
    if given := getattr(_acting, "name", None):
        return str(given)
    if told := os.environ.get("PGAPPNAME"):
        return told
    name = os.environ.get("TESTAPP_ACTOR")
    return f"{name}:{PID or os.getpid()}" if name else OPERATOR


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Meanwhile this thread writes under that name."""
    connection.ensure_connection()
    _acting.name = name
    _introduce(connection)
    try:
        yield
    finally:
        _acting.name = None
        _introduce(connection)


def introduce(connection: Any, **kwargs: Any) -> None:
    """Tell a new connection who uses it."""
    if connection.vendor == "sqlite":
        connection.connection.create_function("testapp_actor", 0, actor)
    elif actor() != OPERATOR and "PGAPPNAME" not in os.environ:
        # With that variable the driver says it while it connects, and a pooler passes it on to each session it uses.
        _introduce(connection)


def _introduce(connection: Any) -> None:
    # Past Django's cursor: the framework discards connections on which a handler sets something.
    if connection.vendor == "postgresql":
        connection.connection.execute("SELECT set_config('application_name', %s, false)", [actor()])
    elif connection.vendor == "mysql":
        connection.connection.query(f"SET @testapp_actor = '{actor()}'")


connection_created.connect(introduce, dispatch_uid="testapp.actor")
