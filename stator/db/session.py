"""Sessions with PostgreSQL: sending of our statements and transactions, settings, and prepared statements."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import ClientCursor, Connection, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import TimestamptzLoader

from stator.db.retry import is_of_a_plan, is_outage, suspends
from stator.db.values import Params, Row
from stator.scopes import PATH
from stator.statements import Placeholder, Statement, fetch_all, numbered

USUAL_CURSOR = vars(BaseDatabaseWrapper)["_cursor"]


def send(connection: BaseDatabaseWrapper, statement: str, params: Params) -> list[Row]:
    """Return the rows of the last statement that returns any; one round trip, with the parameters in the text.

    If it is the first one in a transaction, the same round trip begins the transaction.
    """
    return send_many(connection, statement, params)


def send_many(
    connection: BaseDatabaseWrapper, statement: str, params: Params, sets: list[list[Row]] | None = None
) -> list[Row]:
    """Send one or several statements as :func:`send`; ``sets`` gets the rows of each that returns any."""
    if connection.connection is None:
        connection.ensure_connection()
    # Otherwise a write after an error that a handler caught would seem to succeed and be rolled back.
    connection.validate_no_broken_transaction()
    if getattr(connection._cursor, "__func__", None) is not USUAL_CURSOR:  # type: ignore[attr-defined]
        # Something prepares the session, for instance its path, when Django makes a cursor, and this is no such cursor.
        connection.cursor().close()
    with connection.wrap_database_errors:
        driver = connection.connection
        if driver.autocommit or driver.pgconn.transaction_status != TransactionStatus.IDLE:
            return _sent_rows(connection, statement, params, sets)
        with _beginning(driver) as begin:
            return _sent_rows(connection, begin + statement, params, sets)


def _sent_rows(connection: BaseDatabaseWrapper, text: str, params: Params, sets: list[list[Row]] | None) -> list[Row]:
    cursor = _cursor_of(connection)
    cursor.execute(text, params)
    rows: list[Row] = []
    more: bool | None = True
    while more:
        # ``description`` is not used, because it makes an object for each column.
        if cursor.pgresult and cursor.pgresult.nfields:
            rows = cursor.fetchall()
            if sets is not None:
                sets.append(rows)
        more = cursor.nextset()
    if len(rows) > MAX_KEPT:
        cursor.close()
    return rows


@contextmanager
def _beginning(driver: Connection[Row]) -> Iterator[str]:
    """Yield the text that begins a transaction, "" if the driver has to begin it.

    The driver would begin it with a round trip of its own. It has no public way to leave that to its caller: if a later
    version ignores the attribute that is set here, the server only warns that a transaction has begun already.
    """
    if driver.read_only is not None or driver.deferrable is not None:
        yield ""
        return
    level = driver.isolation_level
    driver._autocommit = True
    try:
        yield f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}; " if level else "BEGIN; "
    finally:
        driver._autocommit = False


# A cursor keeps the rows of its last statement; after more rows than this number it is closed.
MAX_KEPT = 20


def _cursor_of(connection: Any) -> ClientCursor[Row]:
    """Return the cursor for our statements: making one takes longer than sending a statement of one row."""
    cursor: ClientCursor[Row] | None = getattr(connection, "stator_cursor", None)
    if cursor is None or cursor.closed or cursor.connection is not connection.connection:
        cursor = connection.stator_cursor = ClientCursor(connection.connection)
        if settings.USE_TZ:
            # Django registers a loader written in Python; psycopg's own takes a tenth of the time.
            cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


@contextmanager
def read_committed(
    alias: str,
    begin: Callable[[], AbstractContextManager[object]],
    usual: str,
    *,
    idle: float | None = None,
    wait: float | None = None,
    of_handler: bool = False,
) -> Iterator[None]:
    """Open a transaction at READ COMMITTED on a connection outside any; ``usual`` is the session's default level.

    ``idle``: seconds without a statement after which the server ends the session. ``wait``: seconds that a statement
    waits for a lock. ``of_handler``: the transaction also has statements that are not ours.
    """
    connection: Any = connections[alias]
    before = connection.connection.isolation_level
    changes = before not in (None, IsolationLevel.READ_COMMITTED) or (before is None and usual != "read committed")
    if changes:
        connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
    connection.stator_transaction, connection.stator_of_handler = True, of_handler
    try:
        with begin():
            set_limits(connection, idle=idle, wait=wait)
            yield
    finally:
        connection.stator_transaction = False
        if changes and connection.connection is not None and not connection.connection.closed:
            connection.connection.isolation_level = before


@contextmanager
def hurried(
    connection: BaseDatabaseWrapper, begin: Callable[[], AbstractContextManager[object]], wait: float, usual: str
) -> Iterator[None]:
    """Limit lock waits in a part of a handler's transaction that has only our statements; then restore ``usual``."""
    with begin():
        set_limits(connection, wait=wait)
        yield
        _put(connection, {"lock_timeout": usual})


def set_limits(
    connection: BaseDatabaseWrapper,
    *,
    idle: float | None = None,
    wait: float | None = None,
    time: float | None = None,
    parallel: bool = True,
) -> None:
    """Set limits until the end of the transaction: for idle time, for waiting for a lock, for each statement.

    ``parallel``: whether statements may use several processes of the server.
    """
    limits = {"idle_in_transaction_session_timeout": idle, "lock_timeout": wait, "statement_timeout": time}
    wanted = {name: f"{max(1, int(seconds * 1000))}ms" for name, seconds in limits.items() if seconds is not None}
    if not parallel:
        wanted["max_parallel_workers_per_gather"] = "0"
    if wanted:
        _put(connection, wanted)


def _put(connection: BaseDatabaseWrapper, settings: dict[str, str]) -> None:
    # ``send`` is left to statements on rows, so that code that watches it sees no settings.
    send_many(connection, "; ".join(f"{LOCAL}{name} = %s" for name in settings), list(settings.values()))


# How many times a statement is sent before the session prepares it, as in psycopg.
USES = 5

# The most statements that one session prepares: its server process needs some 100 kB for each.
MAX_PREPARED = 100

# The most statements that one session counts: conditions may change for ever, with their constants in the text.
MAX_COUNTED = 1000

LOCAL = "SET LOCAL "

PLACEHOLDER = re.compile("(?<!%)%s")

# One plan for all parameters; otherwise the server would replan most calls because of their estimated cost.
GENERIC = f"{LOCAL}plan_cache_mode = force_generic_plan; "

# Settings that the statements of ``sql`` change for themselves; each statement changes some.
OWN_SETTINGS = (
    "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "enable_indexscan", "enable_bitmapscan",
    "jit", "plan_cache_mode", "lock_timeout",
)  # fmt: skip

WHO = "SELECT pg_backend_pid(), " + ", ".join(
    f"current_setting('{name}')" for name in ("default_transaction_isolation", *OWN_SETTINGS)
)


class Session:
    """One connection's session.

    ``isolation``: the default level of its transactions.
    ``direct``: there is no pooler, which would report a process number of its own and may give each transaction another
    session.
    ``prepares``: it may use prepared statements.
    ``usual``: its values of the settings that our statements change.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        [(pid, self.isolation, *usual)] = send(connection, WHO, [])
        self.usual = dict(zip(OWN_SETTINGS, usual, strict=True))
        self.prepares = self.direct = pid == connection.connection.info.backend_pid
        self._uses: Counter[tuple[str, str]] = Counter()
        # Kept by schema too: a plan is for the tables of one schema.
        self._texts: dict[tuple[str, str], str] = {}
        # If the session turns out to be shared, its prepared statements must not be taken for ours.
        self._prefix = f"stator_{os.urandom(6).hex()}"
        self._names = count()
        # The settings that the whole session has for statements that are alone in their message, as a text; "" for its
        # own.
        self._settled = ""

    def send(
        self,
        connection: BaseDatabaseWrapper,
        planner: str,
        statement: str,
        params: Params,
        *,
        often: bool,
        restore: bool = False,
        last: bool = False,
        alone: bool = False,
    ) -> list[Row]:
        """Return the rows of a statement; if it is sent ``often``, by a plan that the session keeps.

        ``alone``: its message has no other, except when it is prepared, which is the first time. The session is
        :meth:`settled`.

        Parsing and planning are half of the server's cost for a claim or a record of a few rows. ``restore``: reset the
        settings that the statement changes for the rest of the transaction. ``last``: commit the transaction instead.
        """
        key = PATH.get(), statement
        text = self._text(*key, alone=alone) if often and self.prepares else statement
        after = "; COMMIT" if last else self._restoring(planner + text) if restore else ""
        try:
            return send(connection, planner + text + after, params)
        except DatabaseError as error:
            if text.startswith("PREPARE") and suspends(error):
                # The statement is correct, but perhaps was not prepared, so it gets another name the next time.
                del self._texts[key]
            elif text.startswith("PREPARE"):
                # Whatever the reason is, the statement is sent unprepared from now on.
                self._texts[key] = statement
            elif is_of_a_plan(error):
                self.prepares = False
            else:
                raise
            if connection.in_atomic_block or is_outage(error):
                raise
        return send(connection, planner + statement, params)

    def _restoring(self, text: str) -> str:
        """Return the text that resets the settings at the beginning of a text."""
        return "".join(f"; {LOCAL}{name} = '{was}'" for name, was in self.usual.items() if f"{LOCAL}{name} " in text)

    def settle(self, connection: BaseDatabaseWrapper, wait: float | None) -> None:
        """Give the whole session the settings for statements of ours that are alone in their message."""
        timeout = self.usual["lock_timeout"] if wait is None else f"{max(1, int(wait * 1000))}ms"
        self._set(connection, f"SET plan_cache_mode = force_generic_plan; SET lock_timeout = '{timeout}'")

    def unsettle(self, connection: BaseDatabaseWrapper) -> None:
        """Give the session its own settings back."""
        if self._settled:
            names = ("plan_cache_mode", "lock_timeout")
            self._set(connection, "; ".join(f"SET {name} = '{self.usual[name]}'" for name in names))
            self._settled = ""

    def _set(self, connection: BaseDatabaseWrapper, settings: str) -> None:
        if self._settled != settings:
            send_many(connection, settings, ())
            self._settled = settings

    def _text(self, path: str, statement: str, *, alone: bool = False) -> str:
        """Return the text to send, with the same parameters: the statement itself, or the call of its prepared form."""
        key = path, statement
        if known := self._texts.get(key):
            return known
        if len(self._texts) >= MAX_PREPARED:
            return statement
        if len(self._uses) >= MAX_COUNTED:
            self._uses.clear()
        self._uses[key] += 1
        if self._uses[key] <= USES and not alone:
            return statement
        # A new name each time: the server keeps a prepared statement even if its transaction fails.
        name = f"{self._prefix}_{next(self._names)}"
        places = statement.count("%s")
        given = f"({', '.join(['%s'] * places)})" if places else ""
        self._texts[key] = f"{'' if alone else GENERIC}EXECUTE {name}{given}"
        return f"PREPARE {name} AS {numbered(statement)}; {self._texts[key]}"


_sessions: WeakKeyDictionary[Connection, Session] = WeakKeyDictionary()
_sent: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()


def session_of(connection: BaseDatabaseWrapper) -> Session:
    """Return the current session of a connection; its settings are read once."""
    # Django's cursor checks the connection, but our statements do not use that cursor.
    connection.close_if_health_check_failed()
    if connection.connection is None:
        connection.ensure_connection()
    session = _sessions.get(connection.connection)
    if session is None:
        session = _sessions[connection.connection] = Session(connection)
    return session


def inlined(connection: BaseDatabaseWrapper, statement: Statement) -> Statement:
    """Return a statement with its constants in its text, so that only the values that change are sent each time."""
    connection.ensure_connection()
    texts = PLACEHOLDER.split(statement.text)
    parts: list[str | Statement] = [texts[0]]
    with ClientCursor(connection.connection) as cursor:
        for param, text in zip(statement.params, texts[1:], strict=True):
            if isinstance(param, Placeholder):
                parts.append(Statement("%s", (param,)))
            else:
                # A percent sign would be read as a placeholder.
                parts.append(cursor.mogrify("%s", [param]).replace("%", "%%"))
            parts.append(text)
    return Statement.of(*parts)


def send_in_passing(connection: BaseDatabaseWrapper, statement: str, params: Params) -> list[Row]:
    """Return the rows of an application's statement, by a kept plan if it is sent often, else by Django's cursor.

    Django's cursor is used in a transaction, which an error would break, and where queries are counted or wrapped. It
    is also used on a new connection, which may be closed before reading the session's settings pays off.
    """
    if connection.connection is None:
        connection.ensure_connection()
    sent = _sent[connection.connection] = _sent.get(connection.connection, 0) + 1
    if sent <= USES or not connection.autocommit or connection.queries_logged or connection.execute_wrappers:
        return fetch_all(connection, statement, params)
    return session_of(connection).send(connection, "", statement, params, often=True)
