"""Sessions with PostgreSQL: their settings, and the statements that they have prepared."""

import os
from collections import Counter
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DatabaseError

from stator.db.retry import is_lock_timeout, is_of_a_plan, is_outage
from stator.db.sending import send

# A statement is sent so many times before the session prepares it, as in psycopg.
USES = 5

# The most statements that one session prepares: its server process needs some 100 kB for each.
MOST_PREPARED = 100

LOCAL = "SET LOCAL "

# One plan for all parameters; otherwise the server would replan most calls because of their estimated cost.
GENERIC = f"{LOCAL}plan_cache_mode = force_generic_plan; "

# Settings that the statements of ``sql`` change for themselves; each statement changes some.
OWN_SETTINGS = (
    "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "enable_indexscan", "enable_bitmapscan",
    "plan_cache_mode", "lock_timeout",
)  # fmt: skip

WHO = "SELECT pg_backend_pid(), " + ", ".join(
    f"current_setting('{name}')" for name in ("default_transaction_isolation", *OWN_SETTINGS)
)


class Session:
    """One connection's session.

    ``isolation``: the default level of its transactions. ``direct``: there is no pooler, which would report a process
    number of its own and may give each transaction another session. ``prepares``: it may use prepared statements.
    ``usual``: its values of the settings that our statements change.
    """

    def __init__(self, connection: Any) -> None:
        [(pid, self.isolation, *usual)] = send(connection, WHO, [])
        self.usual = dict(zip(OWN_SETTINGS, usual, strict=True))
        self.prepares = self.direct = pid == connection.connection.info.backend_pid
        self._uses: Counter[str] = Counter()
        self._texts: dict[str, str] = {}
        # If the session turns out to be shared, its prepared statements must not be taken for ours.
        self._prefix = f"stator_{os.urandom(6).hex()}"
        self._names = count()

    def send(
        self, connection: Any, planner: str, statement: str, params: list[Any], *, often: bool, restore: bool = False
    ) -> list[Any]:
        """Return the rows of a statement; if it is sent ``often``, by a plan that the session keeps.

        Parsing and planning are half of the server's cost for a claim or a record of a few rows. ``restore``: reset the
        settings that the statement changes for the rest of the transaction.
        """
        text = self._text(statement) if often and self.prepares else statement
        after = self._restoring(planner + text) if restore else ""
        try:
            return send(connection, planner + text + after, params)
        except DatabaseError as error:
            if text.startswith("PREPARE") and is_lock_timeout(error):
                # The statement is correct, but perhaps was not prepared, so it gets another name the next time.
                del self._texts[statement]
            elif text.startswith("PREPARE"):
                # Whatever the reason, send it unprepared from now on.
                self._texts[statement] = statement
            elif is_of_a_plan(error):
                self.prepares = False
            else:
                raise
            if connection.in_atomic_block or is_outage(error):
                raise
        return send(connection, planner + statement, params)

    def _restoring(self, text: str) -> str:
        """Return the text that resets the settings with which a text begins."""
        return "".join(f"; {LOCAL}{name} = '{was}'" for name, was in self.usual.items() if f"{LOCAL}{name} " in text)

    def _text(self, statement: str) -> str:
        """Return the text to send, with the same parameters: the statement itself, or the call of its prepared form."""
        if known := self._texts.get(statement):
            return known
        self._uses[statement] += 1
        if self._uses[statement] <= USES or len(self._texts) >= MOST_PREPARED:
            return statement
        # A new name each time: the server keeps a prepared statement even if its transaction fails.
        name = f"{self._prefix}_{next(self._names)}"
        first, *others = statement.split("%s")
        numbered = first + "".join(f"${number}{part}" for number, part in enumerate(others, start=1))
        self._texts[statement] = f"{GENERIC}EXECUTE {name}({', '.join(['%s'] * len(others))})"
        return f"PREPARE {name} AS {numbered}; {self._texts[statement]}"


_sessions: WeakKeyDictionary[Any, Session] = WeakKeyDictionary()
_sent: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def session_of(connection: Any) -> Session:
    """Return the current session of a connection; its settings are read once."""
    connection.ensure_connection()
    session = _sessions.get(connection.connection)
    if session is None:
        session = _sessions[connection.connection] = Session(connection)
    return session


def send_in_passing(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    """Return the rows of an application's statement, by a kept plan if it is sent often, else by Django's cursor.

    Django's cursor is used in a transaction, which an error would break, and where queries are counted or wrapped. It
    is also used on a new connection, which may be closed before reading the session's settings pays off.
    """
    connection.ensure_connection()
    sent = _sent[connection.connection] = _sent.get(connection.connection, 0) + 1
    if sent <= USES or not connection.get_autocommit() or connection.queries_logged or connection.execute_wrappers:
        with connection.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())
    return session_of(connection).send(connection, "", statement, params, often=True)
