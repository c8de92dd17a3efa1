"""The databases of queues and tasks, which the project's routers choose."""

from django.db import connections, router
from django.db.models import Model

from stator.models import home_of
from stator.scopes import Scope, path_in_use
from tasks.rows.tables import queue_rows


def home() -> str:
    """Return the database that routers choose for writing queues and tasks."""
    return str(router.db_for_write(queue_rows().model))


def settle(row: Model) -> None:
    """Let a row that was read from a replica be read again, and written, in the database where routers write it."""
    row._state.db = home_of(row)


def scope_of(row: Model) -> Scope:
    """Return where this code finds the table of a row: other threads have to be told."""
    using = str(row._state.db)
    return Scope(using, path_in_use(connections[using]))
