"""What is known of a session with PostgreSQL for as long as it lasts, and the statements that it has prepared."""

import os
from collections import Counter
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DatabaseError

from stator.db.retry import is_lock_timeout, is_of_a_plan, is_outage
from stator.db.sending import send

# So often a statement is sent as it is before the session prepares it, as psycopg does.
USES = 5

# The most that one session prepares: its server process keeps some 100 kB for each.
MOST_PREPARED = 100

LOCAL = "SET LOCAL "

# Made once and for all parameters; otherwise the server would make most plans anew, for a guess at what they cost.
GENERIC = f"{LOCAL}plan_cache_mode = force_generic_plan; "

# What the statements of ``sql`` set for themselves, of which each sets some.
OWN_SETTINGS = (
    "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "enable_indexscan", "enable_bitmapscan",
    "plan_cache_mode", "lock_timeout",
)  # fmt: skip

WHO = "SELECT pg_backend_pid(), " + ", ".join(
    f"current_setting('{name}')" for name in ("default_transaction_isolation", *OWN_SETTINGS)
)


class Session:
    """One connection's session.

    ``isolation``: the default of its transactions. ``direct``: no pooler is in between, which would hand out a number
    of its own for the session and may give each transaction another. ``prepares``: it may keep prepared statements.
    ``usual``: its settings of the kind that our statements change for themselves.
    """

    def __init__(self, connection: Any) -> None:
        [(pid, self.isolation, *usual)] = send(connection, WHO, [])
        self.usual = dict(zip(OWN_SETTINGS, usual, strict=True))
        self.prepares = self.direct = pid == connection.connection.info.backend_pid
        self._uses: Counter[str] = Counter()
        self._texts: dict[str, str] = {}
        # Should it be another's session after all, nothing that it has prepared must pass for ours.
        self._prefix = f"stator_{os.urandom(6).hex()}"
        self._names = count()

    def send(
        self, connection: Any, planner: str, statement: str, params: list[Any], *, often: bool, restore: bool = False
    ) -> list[Any]:
        """The rows of a statement; of one that is sent ``often``, by a plan that the session keeps.

        Parsing and planning is half of what a claim or a record of a few rows costs the server. ``restore``: what it
        sets for itself is as before for what comes after it in the transaction.
        """
        text = self._text(statement) if often and self.prepares else statement
        after = self._restoring(planner + text) if restore else ""
        try:
            return send(connection, planner + text + after, params)
        except DatabaseError as error:
            if text.startswith("PREPARE") and is_lock_timeout(error):
                # Nothing is wrong with it; perhaps it was not prepared, so the next time it has another name.
                del self._texts[statement]
            elif text.startswith("PREPARE"):
                # Whatever it was: it is sent as it is from now on.
                self._texts[statement] = statement
            elif is_of_a_plan(error):
                self.prepares = False
            else:
                raise
            if connection.in_atomic_block or is_outage(error):
                raise
        return send(connection, planner + statement, params)

    def _restoring(self, text: str) -> str:
        """What undoes the settings that a text begins with."""
        return "".join(f"; {LOCAL}{name} = '{was}'" for name, was in self.usual.items() if f"{LOCAL}{name} " in text)

    def _text(self, statement: str) -> str:
        """What to send for it, with the same parameters: the statement itself, or the call of it prepared."""
        if known := self._texts.get(statement):
            return known
        self._uses[statement] += 1
        if self._uses[statement] <= USES or len(self._texts) >= MOST_PREPARED:
            return statement
        # Never the same twice: it is kept even where the transaction that prepared it fails.
        name = f"{self._prefix}_{next(self._names)}"
        first, *others = statement.split("%s")
        numbered = first + "".join(f"${number}{part}" for number, part in enumerate(others, start=1))
        self._texts[statement] = f"{GENERIC}EXECUTE {name}({', '.join(['%s'] * len(others))})"
        return f"PREPARE {name} AS {numbered}; {self._texts[statement]}"


_sessions: WeakKeyDictionary[Any, Session] = WeakKeyDictionary()
_sent: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def session_of(connection: Any) -> Session:
    """What is known of the present session of a connection; asked for once."""
    connection.ensure_connection()
    session = _sessions.get(connection.connection)
    if session is None:
        session = _sessions[connection.connection] = Session(connection)
    return session


def send_in_passing(connection: Any, statement: str, params: list[Any]) -> list[Any]:
    """The rows of a statement of an application, by Django's cursor or, where it is sent often, by a plan that is kept.

    By the former in a transaction, which an error would break, where somebody counts or wraps queries, and on a
    connection that is new and perhaps closed again before it is worth a question.
    """
    connection.ensure_connection()
    sent = _sent[connection.connection] = _sent.get(connection.connection, 0) + 1
    if sent <= USES or not connection.get_autocommit() or connection.queries_logged or connection.execute_wrappers:
        with connection.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())
    return session_of(connection).send(connection, "", statement, params, often=True)
