"""Empties the databases after tests that commit: of some hundred tables only those that have rows.

Django's flush does it table by table, and then has every app make its permissions anew; that was a fifth of the time
of the suite.
"""

from typing import Any

from django.db import connections, transaction
from django.test import TransactionTestCase

# As the migrations left them, and the same for every test.
KEPT = {"django_migrations", "django_content_type", "auth_permission"}


def install() -> None:
    """Have the tests use this."""
    TransactionTestCase._fixture_teardown = _teardown


def empty(alias: str) -> None:
    """Delete the rows of all tables."""
    connection = connections[alias]
    quote = connection.ops.quote_name
    tables = sorted(set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT)
    if not tables:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(
                f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {quote(table)})" for number, table in enumerate(tables)
            )
        )
        filled = [quote(tables[number]) for (number,) in cursor.fetchall()]
    if not filled:
        return
    with connection.constraint_checks_disabled(), transaction.atomic(using=alias), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"TRUNCATE {', '.join(filled)} CASCADE")
            return
        for table in filled:
            cursor.execute(f"DELETE FROM {table}")


def _teardown(self: Any) -> None:
    for alias in self._databases_names(include_mirrors=False):
        empty(alias)
