"""Rows became ready: the signal after the commit, and NOTIFY for sleeping workers on the connection that committed."""

import time
from collections.abc import Callable
from functools import lru_cache, partial

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.conf import Settings
from stator.rows.state_column import state_field
from stator.scopes import path_in_use
from stator.signals import became_ready, send_logged

CHANNEL = "stator"

# At most one NOTIFY per model and process in this time. A woken worker polls again after 20, 40, 80 ms and so on, so
# rows committed shortly after a NOTIFY do not wait for the idle poll.
DEBOUNCE = 0.005

# After this many commits without a NOTIFY, a program creates object after object, and each NOTIFY takes a third of the
# time of creating one. The next is then sent when the woken worker polls again by itself.
STREAM, STREAM_DEBOUNCE = 8, 0.020

# Nobody waits for this commit to reach the disk, because nothing is lost if the server crashes before.
NOTIFY = "SELECT pg_notify(%s, %s), set_config('synchronous_commit', 'off', true)"

# When a model was announced last, and how often it was not since then, by database and path.
_sent: dict[tuple[str, type[Model], str], tuple[float, int]] = {}


def announce(model: type[Model], using: str, *, wakes: bool = True) -> None:
    """Send ``became_ready`` once the current transaction commits; errors of receivers are logged.

    ``wakes``: whether workers may take the objects. If not, only receivers in this process are called.
    With autocommit off and no ``atomic`` block, the commit cannot be noticed: workers find the objects by polling.
    """
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        if connection.autocommit:
            _send(model, using, wakes)
        return
    if connection.atomic_blocks[0]._from_testcase and not became_ready.has_listeners(model):
        # Never committed, and a project's test may count the functions that its own code adds.
        return
    send, registered = _sender_of(model, using, wakes), connection.run_on_commit
    # The signal is sent once for many objects of one transaction.
    if not (registered and registered[-1][1] is send and registered[-1][0] == set(connection.savepoint_ids)):
        connection.on_commit(send)


@lru_cache(maxsize=1024)
def _sender_of(model: type[Model], using: str, wakes: bool) -> Callable[[], object]:
    return partial(_send, model, using, wakes)


def _send(model: type[Model], using: str, wakes: bool) -> None:
    if became_ready.has_listeners(model):
        send_logged(became_ready, model, using=using, wakes=wakes)
    if wakes:
        notify(model, using)


def notify(model: type[Model], using: str) -> None:
    """Send only the label of the model to listening workers, and the path of the rows if one was chosen."""
    connection = connections[using]
    path = path_in_use(connection)
    now, key = time.monotonic(), (using, model, path)
    last = _sent.get(key)
    sent, unsent = last or (0.0, 0)
    if now - sent < (DEBOUNCE if unsent <= STREAM else STREAM_DEBOUNCE):
        _sent[key] = sent, unsent + 1
        return
    if last is None and not capabilities_of(connection).notifies:
        return
    # Inside a transaction NOTIFY takes a lock that all committing transactions share, and its queue can fill up.
    if connection.in_atomic_block or not _is_wanted(model):
        return
    _sent[key] = now, 0
    try:
        with connection.cursor() as cursor:
            cursor.execute(NOTIFY, [CHANNEL, f"{model._meta.label_lower} {path}".strip()])
    except (DatabaseError, InterfaceError):
        # The rows are committed; workers find them at their next poll. The next use of the connection raises the error.
        connection.close_if_unusable_or_obsolete()


def _is_wanted(model: type[Model]) -> bool:
    if state_field(model).is_left:
        return False
    # Reading all settings would take longer than the statement.
    given = getattr(settings, "STATOR", None)
    return bool(given.get("NOTIFY", Settings.NOTIFY)) if isinstance(given, dict) else Settings.NOTIFY
