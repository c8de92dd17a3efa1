"""Empties the databases after tests that commit: of some hundred tables only those that have rows.

Django's flush does it table by table, and then has every app make its permissions anew; that was a fifth of the time
of the suite.
"""

from typing import Any

from django.db import connections, transaction
from django.test import TransactionTestCase

from stator.capabilities import capabilities_of

# As the migrations left them, and the same for every test.
KEPT = {"django_migrations", "django_content_type", "auth_permission"}

# Bytes.
SMALL = 64 * 1024

# By size, so that no table is read for it: of deleted rows some remains, until there is more than SMALL. A new session,
# which each test has, takes 6 ms for pg_relation_size, which opens every table, and 3 ms for the sizes of the files.
FILLED = """
SELECT name, size <= %s AND is_super FROM (
  SELECT quote_ident(relname) AS name, is_super,
    CASE WHEN is_super THEN (pg_stat_file(pg_relation_filepath(oid), true)).size ELSE pg_relation_size(oid) END AS size
  FROM pg_class, CAST(current_setting('is_superuser') AS boolean) AS is_super
  WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> ALL(%s)) AS tables
WHERE size > 0
"""


def install() -> None:
    """Have the tests use this."""
    TransactionTestCase._fixture_teardown = _teardown  # type: ignore[attr-defined]


def empty(alias: str) -> None:
    """Delete the rows of all tables."""
    connection = connections[alias]
    # The tables that Citus shows on a coordinator have a size of 0.
    has_sizes = capabilities_of(connection).name == "postgresql"
    empty_it = _empty_postgresql if has_sizes else _empty
    empty_it(connection)


def filled(connection: Any) -> list[str]:
    """Return the names of the tables that have rows, without those that every test finds alike; one statement."""
    there, named = connection.introspection.table_names(), connection.introspection.django_table_names()
    # A model may have the name of its table quoted.
    names = sorted(name for name in {*named} - KEPT if name.strip('"') in there)
    tables = [connection.ops.quote_name(name) for name in names]
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"SELECT {at} WHERE EXISTS (SELECT 1 FROM {name})" for at, name in enumerate(tables))
        )
        return [names[at] for (at,) in cursor.fetchall()]


def _empty(connection: Any) -> None:
    names = filled(connection)
    with (
        connection.cursor() as cursor,
        connection.constraint_checks_disabled(),
        transaction.atomic(using=connection.alias),
    ):
        for name in names:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(name)}")


def _empty_postgresql(connection: Any) -> None:
    """Truncation makes the files of a table and of its indexes anew: only where many rows were is it worth that."""
    with connection.cursor() as cursor, transaction.atomic(using=connection.alias):
        cursor.execute(FILLED, [SMALL, list(KEPT)])
        filled = cursor.fetchall()
        if large := ", ".join(name for name, is_small in filled if not is_small):
            cursor.execute(f"TRUNCATE {large} CASCADE")
        if small := [f"DELETE FROM {name}" for name, is_small in filled if is_small]:
            # Neither foreign keys nor triggers: all of them go, and nobody is to be told.
            cursor.execute("; ".join(["SET LOCAL session_replication_role = replica", *small]))


def _teardown(self: Any) -> None:
    for alias in self._databases_names(include_mirrors=False):
        empty(alias)
