"""How many rows of a table were written, by the database's own account."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection
from django.db.models import Model

EVENTS = ("INSERT", "UPDATE", "DELETE")


def execute(*statements: str) -> None:
    """Run statements."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def counted_writes(model: type[Model]) -> Iterator[Callable[[], tuple[int, ...]]]:
    """Yield what returns the numbers of rows that were inserted, updated and deleted since.

    PostgreSQL counts them itself, and those of a connection arrive when it has ended; triggers note them elsewhere.
    """
    table = model._meta.db_table
    if connection.vendor == "postgresql":
        # What the rows of the test itself have cost is then among them.
        connection.close()
        before = _by_server(table)
        yield lambda: tuple(now - then for now, then in zip(_by_server(table), before, strict=True))
        return
    begin, end = ("BEGIN", "; END") if connection.vendor == "sqlite" else ("", "")
    execute(
        "CREATE TABLE noted_writes (what varchar(10))",
        *(
            f"CREATE TRIGGER noted_{event} AFTER {event} ON {table} FOR EACH ROW {begin} "
            f"INSERT INTO noted_writes VALUES ('{event}'){end}"
            for event in EVENTS
        ),
    )
    try:
        yield _by_triggers
    finally:
        execute(*(f"DROP TRIGGER noted_{event}" for event in EVENTS), "DROP TABLE noted_writes")


def _by_triggers() -> tuple[int, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT what FROM noted_writes")
        noted = Counter(what for (what,) in cursor.fetchall())
    return tuple(noted[event] for event in EVENTS)


def _by_server(table: str) -> tuple[int, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = %s", [table])
        return tuple(cursor.fetchone())
