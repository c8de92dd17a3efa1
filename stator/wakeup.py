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

# Where more than so many commits were in the shadow of one, somebody creates object after object, and each NOTIFY
# takes a third of the time of one. The next is then sent when the worker that was woken looks again by itself.
STREAM, STREAM_DEBOUNCE = 8, 0.020

# Nothing is lost with a server that ends before this is on its disk, so nobody waits until it is.
NOTIFY = "SELECT pg_notify(%s, %s), set_config('synchronous_commit', 'off', true)"

# When a model was announced last, and how often it was not since.
_sent: dict[tuple[str, Any], tuple[float, int]] = {}


def connect() -> None:
    """Have commits that make rows ready wake workers."""
    became_ready.connect(notify, dispatch_uid="stator.wakeup")


def notify(sender: Any, using: str, **kwargs: Any) -> None:
    """Send the label of the model, and nothing else, to listening workers."""
    now = time.monotonic()
    sent, unsent = _sent.get((using, sender), (0.0, 0))
    if now - sent < (DEBOUNCE if unsent <= STREAM else STREAM_DEBOUNCE):
        _sent[using, sender] = sent, unsent + 1
        return
    connection = connections[using]
    # Inside a transaction NOTIFY takes a lock that all committing transactions share, and its queue can fill up.
    if connection.vendor != "postgresql" or connection.in_atomic_block or not _is_wanted():
        return
    _sent[using, sender] = now, 0
    try:
        with connection.cursor() as cursor:
            cursor.execute(NOTIFY, [CHANNEL, sender._meta.label_lower])
    except (DatabaseError, InterfaceError):
        # The rows are committed; workers find them at their next poll. The next use of the connection tells the caller.
        connection.close_if_unusable_or_obsolete()


def _is_wanted() -> bool:
    # Not by reading all settings, which takes longer than the statement.
    given = getattr(settings, "STATOR", None)
    return bool(given.get("NOTIFY", Settings.NOTIFY)) if isinstance(given, dict) else Settings.NOTIFY
