"""Classification of database errors: worth an immediate retry, an outage, a lock timeout, a missing table or column."""

import re
from typing import Any

from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, ProgrammingError

from stator.graph.failures import text_of

# serialization_failure, deadlock_detected, lock_not_available: the transaction did nothing and may be repeated.
RETRYABLE = frozenset({"40001", "40P01", "55P03"})

# These errors as numbers of MySQL and MariaDB, whose drivers give no SQLSTATE: a row changed since this transaction
# began, a lock was not granted in time or with NOWAIT, deadlock.
NOT_AVAILABLE_NUMBERS = frozenset({1205, 3572})
RETRYABLE_NUMBERS = frozenset({1020, 1213, *NOT_AVAILABLE_NUMBERS})

# Errors of MySQL and MariaDB about a value or a row, which their drivers report as OperationalError. A key or row is
# too long, the type does not have the value, a column has no value, a trigger raised the error, or a text is not JSON.
OF_VALUES_NUMBERS = frozenset({1071, 1118, 1292, 1364, 1366, 1644, 3140})

# invalid_sql_statement_name, duplicate_prepared_statement: the session has changed; it prepares nothing more.
GONE = frozenset({"26000", "42P05"})

# feature_not_supported: also the error of extensions that distribute tables, such as Citus.
UNSUPPORTED = "0A000"

# undefined_column, undefined_table; MySQL's numbers for them; SQLite's messages, which are all it has.
ABSENT, ABSENT_NUMBERS = frozenset({"42703", "42P01"}), frozenset({1054, 1146})
ABSENT_TEXTS = re.compile(r"no such (column|table)|table \S+ has no column named")

# program_limit_exceeded, such as a value too long for its index: an OperationalError, but a permanent one.
LIMITS = "54"

# connection_exception, connection_does_not_exist, connection_failure, sqlclient_unable_to_establish_sqlconnection.
OF_CONNECTIONS = frozenset({"08000", "08001", "08003", "08006"})

# The classes of errors of a database that cannot be used now. A server that became a read replica, or a coordinator of
# Citus whose connection to a node broke, answers with an InternalError.
OUTAGES = (OperationalError, InterfaceError, InternalError)

# query_canceled, also by ``statement_timeout``; MySQL's and MariaDB's numbers; SQLite's message.
CUT, CUT_NUMBERS, CUT_TEXT = "57014", frozenset({3024, 1969}), "interrupted"

# The class of syntax errors, missing names and missing rights: no row is at fault.
OF_THE_STATEMENT = "42"

# lock_not_available: at once with NOWAIT, after a wait with ``lock_timeout``.
NOT_AVAILABLE = "55P03"


def is_retryable(error: BaseException) -> bool:
    """Return whether the statement lost to another transaction or has a stale plan, and may be repeated at once."""
    state = getattr(error.__cause__, "sqlstate", None)
    return (
        state in RETRYABLE
        or _number_of(error) in RETRYABLE_NUMBERS
        or "database is locked" in text_of(error)
        or is_of_a_plan(error)
    )


def is_lock_timeout(error: BaseException) -> bool:
    """Return whether a statement gave up waiting for another transaction's lock; it did nothing."""
    refused = getattr(error.__cause__, "sqlstate", None) == NOT_AVAILABLE or _number_of(error) in NOT_AVAILABLE_NUMBERS
    return refused or (isinstance(error, OperationalError) and "database is locked" in text_of(error))


def is_cut_short(error: BaseException) -> bool:
    """Return whether a statement was ended by a limit: of the time that it waits for a lock, or that it takes."""
    cut = getattr(error.__cause__, "sqlstate", None) == CUT or _number_of(error) in CUT_NUMBERS
    return cut or text_of(error) == CUT_TEXT or is_lock_timeout(error)


def is_of_remote(error: BaseException) -> bool:
    """Return whether the server answered that it cannot reach another one with the rows, as for a foreign table.

    If the server itself cannot be reached, there is no answer, or the answer ends the session. An engine that waits no
    longer for such a server says so of its error (``of_remote``).
    """
    cause: Any = error.__cause__
    if getattr(cause, "sqlstate", None) not in OF_CONNECTIONS:
        return False
    return getattr(cause, "of_remote", False) or cause.diag.severity_nonlocalized == "ERROR"


def suspends(error: BaseException) -> bool:
    """Return whether only the step of one model has to wait: its table is locked, or the server that has it is away."""
    return is_lock_timeout(error) or is_of_remote(error)


def is_of_a_plan(error: BaseException) -> bool:
    """Return whether a prepared statement failed that would have worked unprepared."""
    cause: Any = error.__cause__
    if getattr(cause, "sqlstate", None) == UNSUPPORTED:
        # A returned column has another type now. Only localized messages distinguish other unsupported features.
        return bool(cause.diag.source_function == "RevalidateCachedQuery")
    return getattr(cause, "sqlstate", None) in GONE


def is_of_schema(error: BaseException) -> bool:
    """Return whether a statement does not fit a table: it names a missing table or column, or is not supported there.

    Somebody has to migrate, or to change how an extension of the server manages the table.
    """
    cause = error.__cause__
    if cause is None:
        return False
    if getattr(cause, "sqlstate", None) == UNSUPPORTED:
        return not is_of_a_plan(error)
    if not isinstance(error, OperationalError | ProgrammingError):
        return False
    if getattr(cause, "sqlstate", None) in ABSENT or _number_of(error) in ABSENT_NUMBERS:
        return True
    return type(cause).__module__ == "sqlite3" and ABSENT_TEXTS.match(text_of(cause)) is not None


def is_refusal(error: BaseException) -> bool:
    """Return whether a row may be at fault, rather than the connection or the statement."""
    if isinstance(error, ProgrammingError):
        # Errors that a trigger raises are refusals as well.
        state: str = getattr(error.__cause__, "sqlstate", None) or OF_THE_STATEMENT
        return not state.startswith(OF_THE_STATEMENT)
    return not (is_passing(error) or is_of_schema(error))


def is_outage(error: BaseException) -> bool:
    """Return whether the database cannot be used at the moment, so that waiting is the answer."""
    if str(getattr(error.__cause__ or error, "sqlstate", "")).startswith(LIMITS) or is_of_schema(error):
        return False
    if _number_of(error) in OF_VALUES_NUMBERS:
        return False
    if isinstance(error, OUTAGES):
        return True
    # Django does not wrap the driver's errors when it closes the server-side cursor of an ``iterator()``; PEP 249 has
    # their names.
    names = {each.__name__ for each in type(error).__mro__}
    return "Error" in names and bool(names & {"OperationalError", "InterfaceError"})


def is_passing(error: BaseException) -> bool:
    """Return whether the failed statement may succeed later without a change to it."""
    return is_outage(error) or is_retryable(error)


def is_of_database(error: BaseException | None) -> bool:
    """Return whether an error, or one among its causes, contexts and group members, is a database error."""
    visited: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in visited:
            continue
        if isinstance(each, DatabaseError | InterfaceError):
            return True
        visited.add(id(each))
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return False


def _number_of(error: BaseException) -> int | None:
    """Return the number that MySQL and MariaDB give an error; other errors have a text in its place, or anything."""
    cause = error.__cause__ or error
    number = cause.args[0] if cause.args else None
    return number if isinstance(number, int) else None
