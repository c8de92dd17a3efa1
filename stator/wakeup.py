"""Tells sleeping workers that rows became ready: NOTIFY after the commit, on the connection that committed."""

import time
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections

from stator.conf import Settings
from stator.signals import became_ready

CHANNEL = "stator"

# At most one NOTIFY per model in this time and process. A worker that was woken looks again after 20, 40, 80 ms and
# so on, so rows that were committed in the shadow of an earlier NOTIFY do not wait for the idle poll.
DEBOUNCE = 0.005

# Nothing is lost with a server that ends before this is on its disk, so nobody waits until it is.
NOTIFY = "SELECT pg_notify(%s, %s), set_config('synchronous_commit', 'off', true)"

_sent: dict[tuple[str, str], float] = {}


def connect() -> None:
    """Have commits that make rows ready wake workers."""
    became_ready.connect(notify, dispatch_uid="stator.wakeup")


def notify(sender: Any, using: str, **kwargs: Any) -> None:
    """Send the label of the model, and nothing else, to listening workers."""
    connection = connections[using]
    # Inside a transaction NOTIFY takes a lock that all committing transactions share, and its queue can fill up.
    if connection.vendor != "postgresql" or connection.in_atomic_block:
        return
    key = (using, sender._meta.label_lower)
    now = time.monotonic()
    if now - _sent.get(key, 0.0) < DEBOUNCE or not _is_wanted():
        return
    _sent[key] = now
    try:
        with connection.cursor() as cursor:
            cursor.execute(NOTIFY, [CHANNEL, key[1]])
    except (DatabaseError, InterfaceError):
        # The rows are committed; workers find them at their next poll. The next use of the connection tells the caller.
        connection.close_if_unusable_or_obsolete()


def _is_wanted() -> bool:
    # Not by reading all settings, which takes longer than the statement.
    given = getattr(settings, "STATOR", None)
    return bool(given.get("NOTIFY", Settings.NOTIFY)) if isinstance(given, dict) else Settings.NOTIFY
