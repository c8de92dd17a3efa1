"""The connections of a worker's threads: kept by the thread, cleaned after each handler, checked after a rest."""

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.capabilities import capabilities_of
from stator.scopes import PATHS

# libpq's PQTRANS_IDLE, spelled out because psycopg is optional.
IDLE = 0

# The statement may follow comments. Settings that end with the transaction do not count.
SESSION_STATEMENT = re.compile(
    r"(\s|--[^\n]*(\n|$)|/\*.*?\*/)*"
    r"(SET\s+(?!(LOCAL|TRANSACTION|CONSTRAINTS)\b)|(RESET|LISTEN|PREPARE|DECLARE|PRAGMA|DISCARD|DEALLOCATE)\b"
    r"|CREATE\s+((LOCAL|GLOBAL)\s+)?TEMP|LOCK\s+TABLES\b|USE\b)",
    re.IGNORECASE | re.DOTALL,
)
SESSION_CALL = re.compile(r"\b(set_config|pg_(try_)?advisory_lock(_shared)?|get_lock)\s*\(", re.IGNORECASE)
# Seconds without use after which a connection is checked: the server, or something on the way to it, may have ended it.
RESTED = 1.0

_thread = threading.local()

# Begins a transaction that Django does not know about.
BEGIN = re.compile(r"\s*(BEGIN|START\s+TRANSACTION|XA\s+(START|BEGIN))\b", re.IGNORECASE)


def own_connections(*, watch: bool = True) -> None:
    """Have this thread keep its connections; call it before they are opened. ``watch``: see :func:`watch_session`.

    They do not come from Django's pool (``OPTIONS = {"pool": ...}``). The threads of a worker would empty the pool and
    wait for each other. They would also get sessions that handlers of other threads have changed.
    """
    for connection in connections.all():
        options = connection.settings_dict.get("OPTIONS") or {}
        if options.get("pool"):
            without = {name: value for name, value in options.items() if name != "pool"}
            # The dictionary is copied, because the threads of a website share it.
            connection.settings_dict = {**connection.settings_dict, "OPTIONS": without}
        if watch:
            watch_session(connection)


def check_rested_connections() -> None:
    """Have connections checked at their next use if this thread has not used them lately."""
    if time.monotonic() - getattr(_thread, "cleaned", 0.0) > RESTED:
        check_connections()


def check_connections() -> None:
    """Have Django check this thread's connections at their next use, and replace dead ones."""
    connection: Any
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.in_atomic_block:
            # CONN_HEALTH_CHECKS is ignored here: it is meant for a check in each request.
            connection.health_check_enabled, connection.health_check_done = True, False


def watch_session(connection: BaseDatabaseWrapper) -> None:
    """Note when a handler changes its session, for instance by ``SET search_path``; it is then not reused."""
    if _note_session_change not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note_session_change)
        setattr(connection, "connect", partial(_connect, connection, connection.connect))  # noqa: B010 - of this one


def clean_connections() -> None:
    """Discard this thread's connections that have an open or failed transaction or a changed session."""
    _thread.cleaned = time.monotonic()
    # To ask Django for this thread's connections takes as long as the rest of a short attempt.
    own = getattr(_thread, "connections", [])
    # A project may add databases at run time.
    if len(own) != len(connections.settings):
        own = _thread.connections = list(connections.all())
    for connection in own:
        connection.queries_log.clear()
        if connection.connection is None:
            continue
        dirty = connection.in_atomic_block or connection.errors_occurred or not connection.get_autocommit()
        if dirty or _in_transaction(connection) or getattr(connection, "_stator_session_changed", False):
            _discard(connection)


def changes_session(statement: str) -> bool:
    """Return whether a statement changes the session for later statements."""
    if SESSION_STATEMENT.match(statement):
        return True
    # A text search first, because a pattern takes many times as long.
    lower = statement.lower()
    return any(name in lower for name in ("set_config", "_lock")) and bool(SESSION_CALL.search(statement))


def _discard(connection: Any) -> None:
    """Close a connection regardless of its transaction's state; the next use opens another."""
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.needs_rollback = False
    connection.run_on_commit = []
    connection._stator_session_changed = False
    # The driver of MySQL raises if the handler has closed it behind Django's back; then there is nothing to close.
    with suppress(OperationalError):
        connection.close()


def _in_transaction(connection: Any) -> bool:
    driven = connection.connection
    if capabilities_of(connection).reports_transaction_status:
        return bool(driven.info.transaction_status != IDLE)
    try:
        # MySQL's driver has ``open``: a closed connection must be discarded too.
        return bool(getattr(driven, "in_transaction", False)) or not getattr(driven, "open", True)
    except connection.Database.Error:
        # Closed without Django, which sqlite3 answers with an error. It must be discarded like an open transaction.
        return True


def _knows_transactions(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the driver knows if a transaction is open; MySQL's driver does not."""
    knows = capabilities_of(connection).reports_transaction_status
    return knows or hasattr(type(connection.connection), "in_transaction")


def _connect(connection: BaseDatabaseWrapper, connect: Callable[[], None]) -> None:
    """Open a connection. Settings made meanwhile, by Django on MySQL or by receivers, are how every session begins."""
    connect()
    setattr(connection, "_stator_session_changed", False)  # noqa: B010 - no attribute that Django knows


def _note_session_change(
    execute: Callable[..., object], sql: object, params: object, many: bool, context: dict[str, Any]
) -> object:
    connection = context["connection"]
    # psycopg composes statements of parts.
    text = sql if isinstance(sql, str) else sql.as_string(connection.connection) if hasattr(sql, "as_string") else ""
    changes = changes_session(text) and not PATHS.finds(connection, text)
    if changes or (BEGIN.match(text) and not _knows_transactions(connection)):
        connection._stator_session_changed = True
    return execute(sql, params, many, context)
